// Package netlab makes networks on one machine: a network namespace for each
// node, and between them links with a delay, jitter, loss, a rate, or a cut.
//
// # Owns
//
// The namespaces, their devices and addresses, and the switch. Nothing of it has a name outside: it vanishes
// with the lab's descriptors and processes, also if the lab is killed.
//
// # How packets travel
//
// On a TUN network each node has a TUN device, and one thread of the lab, the
// switch, reads packets from it, keeps them in the queue of their direction
// until they are due, and writes them to the destination's device. The kernel's
// netem would do the same; many kernels do not have it. The switch is preferred
// by the scheduler (SCHED_FIFO), for a real one does not wait for a server's
// processor. Streams cross it in packets of up to 64 KiB with their checksums
// still to be computed (segmentation and checksum offload, as with a network
// card): LossPerMille and a full queue drop these as a whole.
//
// On a Veth network, and between the client and the node beside it, every two
// nodes are joined by a pair of virtual Ethernet devices. They are as fast as
// the kernel is: the 0.1 ms of `same-rack` is what the articles' network had, not
// what is waited here. A cut makes the peer's hardware address one that nobody
// has.
//
// # Goroutines
//
// Up starts the switch, Close ends it and waits for it. Everything that enters a
// namespace does so on a thread that is given up afterwards. Processes are package
// subprocess's.
//
// # Limits
//
// IPv4 only, 32 nodes. A direction holds 16 MiB or 32 Ki packets under way; what
// comes beyond is dropped and counted. The switch has one thread: Ceiling says
// what it carries. Only the network is a node's own: process ids, files and the
// clock are the machine's.
package netlab
