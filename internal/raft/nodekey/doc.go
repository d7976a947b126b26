// Package nodekey is the key of a node: what the node proves to its peers that it is, and how it
// knows theirs.
//
// # What it owns
//
// The file of the key (PKCS#8 in PEM, mode 0600). It lies beside the configuration, not in the
// data directory: a node that has lost its data is still the same node. The file is complete or
// absent, whenever the machine stops: it is written under another name, synced, and linked.
//
// # What counts
//
// A key is known by its public part alone (cluster.Key). The certificate around it is made in
// memory, signed by the key itself, and says nothing: no name, no authority, no time at which it
// ends. So nothing expires, and no clock is asked.
//
//	node.key ──► Key ──► certificate ──► TLS 1.3 ──► Of(certificate) = cluster.Key ──► the member list
//
// The key is ECDSA on P-256. Of refuses certificates of other kinds of keys: only what all nodes
// can check may be pinned.
//
// # An operator's authority
//
// Who has an authority for certificates may use it (Authority, LoadIssued): the name of a key is then the
// one URI of its certificate, and every key counts to which the authority gives that URI. So certificates
// may end and be issued anew; that one has ended is an alarm, and shuts nobody out. An authority says whose
// a key is, and not who is a member.
//
// The package starts no goroutine.
package nodekey
