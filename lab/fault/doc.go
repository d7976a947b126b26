// Package fault has the catalogue of the faults that the lab injects.
//
// # Network faults
//
// NetworkFaults are about one node and its links to the other nodes. The clients
// stay where they are, and reach every node, except with `unplugged`. Inject
// returns the function that heals: it sets the links to their state before the fault, so
// faults on the same links must end in the reverse order.
//
// # Disks
//
// Disks are directories for the nodes' data, mounted so that they break on command:
// writes that wait or fail, and loss of power. OpenFUSE makes them with package
// faultmount.
//
// # Owns
//
// The package owns the mounts of Disks, until Close, and nothing else: networks belong to the
// caller. It has no goroutines.
package fault
