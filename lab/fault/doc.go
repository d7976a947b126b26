// Package fault has the catalogue of what the lab does to systems.
//
// # Network faults
//
// NetworkFaults are about one node and its links to the other nodes. The clients
// stand where they stood, and reach every node, but for `unplugged`. Inject
// returns what heals: the links become what they were when the fault began, so
// faults on the same links end in the reverse order.
//
// # Disks
//
// Disks are directories for the nodes' data, mounted so that they break on command:
// writes that wait or fail, and loss of power. OpenFUSE makes them, of package
// faultmount.
//
// # Owns
//
// The mounts of Disks, until Close. Else nothing: it changes a network of its
// caller's. It has no goroutines.
package fault
