// Package nodekey is the key of a node. With it a node proves to its peers which node it is, and by their keys
// it knows them.
//
// # What it owns
//
// The file of the key (PKCS#8 in PEM, mode 0600). The file lies beside the configuration, not in the data
// directory: a node that has lost its data is still the same node. The file is complete or absent, even if the
// machine stops at any moment: it is written under another name, synced, and linked.
//
// # What counts
//
// A key is known only by its public part (cluster.Key). The certificate around it is made in memory, signed by
// the key itself, and says nothing more: no name, no authority, no end. So nothing expires, and no clock
// matters.
//
//	node.key ──► Key ──► certificate ──► TLS 1.3 ──► Of(certificate) = cluster.Key ──► the member list
//
// The key is ECDSA on P-256. Of refuses certificates of other kinds of keys: a key may be pinned only if all
// nodes can check it.
//
// # An operator's authority
//
// An operator who has an authority for certificates may use it (Authority, LoadIssued). Then the name of a key
// is the one URI of its certificate, and every key is accepted to which the authority has given that URI. So
// certificates may expire and be issued again. An expired certificate raises an alarm, and shuts no node out.
// An authority says to which node a key belongs, but not which nodes are members.
//
// The package starts no goroutine.
package nodekey
