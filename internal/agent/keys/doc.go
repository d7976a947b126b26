// Package keys is a node's own key: which one it shows, and how it changes to another while it runs.
//
// # What it owns
//
// Which key this node shows. The files are the operator's: node.key, and beside it node.key.next while the key is
// being changed ("quorate key rotate" makes it, and in the end gives it the place of node.key by TakeNext). An
// agent reads them. It writes only node.key, if there is none and no authority has issued one: only then it needs
// the right to write beside its configuration.
//
// # A change of the key
//
//	state of this node's member    this node shows    until
//	key A                          A                  node.key.next holds B, and the operator asks for it
//	key A, next B                  A                  all members have that state on their disks
//	key A, next B                  B                  the leader has committed B
//	key B                          B
//
// Before it shows B, the node notes that in its data directory (key.json). Once the others have heard B they may commit
// it, and take A no more, while the node's own disk has the second state still. So a node that starts with that state
// goes by the note. While a node is rebuilt it has no state, and goes by the note, too.
//
// A member that is away holds up the change, not the cluster: when it comes back it still knows A, and is
// shown A. Whatever happens in between, both keys are this node's, so each step can be done again.
//
// # Goroutines
//
// Service.Run is one: it calls Look about once a second, and compares the keys in the configuration with the cluster's.
package keys
