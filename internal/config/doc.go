// Package config holds the values that an operator sets, and nothing else.
//
// A Config is made in three steps that stay apart: Default holds every
// default, Load reads a TOML file over it, Validate checks the result. Both
// Load and Validate report everything they find, one Problem per line, each
// with the file and the line where it is and what to do about it. An unknown
// key is an error: a misspelt setting that is silently ignored is worse than
// an agent that does not start.
//
// The package owns no state, starts no goroutine and opens no file except that
// of Load. Of the product, only the agent (packages agent, operate and readers) and the commands
// (cli, doctor) import it, and devcluster, which writes such files. All other packages get plain values from
// their constructors.
//
// # Identities
//
// Ids are computed from names, so nothing has to be handed out or stored
// before the first start, and every node computes the same ones:
//
//	node id    = first 8 bytes of SHA-256("quorate-node\x00" + cluster + "\x00" + name)
//	cluster id = first 8 bytes of SHA-256("quorate-cluster\x00" + cluster + {"\x00" + name of each member, sorted})
//
// both big-endian, with 0 replaced by 1 (0 means "nobody" in Raft). Addresses
// are not part of either: a host can get a new address without becoming
// another node. The member names are part of the cluster id, so that two
// clusters of the same name with different members refuse each other.
package config
