// Package netlab makes networks on one machine: a network namespace for each
// node, and between them links with a delay, jitter, loss, a rate, or a cut.
//
// # Owns
//
// The package owns the namespaces, their devices and addresses, and the switch. None of them has a name outside: they
// vanish with the lab's descriptors and processes, also if the lab is killed.
//
// # How packets travel
//
// On a TUN network each node has a TUN device, and one thread of the lab, the
// switch, reads packets from it, keeps them in the queue of their direction
// until they are due, and writes them to the destination's device. The kernel's
// netem would do the same, but many kernels do not have it. The scheduler prefers the
// switch (SCHED_FIFO), because a real switch does not wait for a server's
// processor. Streams cross it in packets of up to 64 KiB with their checksums
// still to be computed (segmentation and checksum offload, as with a network
// card): LossPerMille and a full queue drop these as a whole.
//
// On a Veth network, and between the client and the node beside it, every two
// nodes are joined by a pair of virtual Ethernet devices. They are as fast as
// the kernel: the 0.1 ms of `same-rack` is the delay of the articles' network, and no delay
// is added here. A cut sets the peer's hardware address to one that nobody
// has.
//
// # Goroutines
//
// Up starts the switch, Close ends it and waits for it. Code that enters a
// namespace runs on a thread that ends afterwards. Package subprocess starts the
// processes.
//
// # Limits
//
// IPv4 only, 32 nodes. A direction holds 16 MiB or 32 Ki packets under way; further
// packets are dropped and counted. The switch has one thread: Ceiling says
// how much it carries. Nodes have only networks of their own: they share process ids, files and the
// clock of the machine.
package netlab
