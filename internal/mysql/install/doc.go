// Package install finds the MySQL that a node runs.
//
// quorate ships no server: Discover looks at the directory that the
// configuration names, then at the environment, then at PATH, and describes
// what it found as an Installation: version, where the plugins, messages and
// character sets are, and the argument vectors that start mysqld and its
// clients.
//
// Two layouts are understood:
//
//	a normal prefix                  a private prefix (scripts/get-mysql.sh)
//	  BASE/{bin,sbin}/mysqld           BASE/usr/sbin/mysqld
//	  BASE/lib*/…/plugin               BASE/usr/lib/mysql/plugin
//	  BASE/share/…                     BASE/usr/share/mysql
//	                                   BASE/usr/lib/TRIPLET/ld-linux-*.so.*
//
// A private prefix has the libraries and the dynamic loader that its programs were built for.
// Every argument vector then starts with that loader. So the programs run on a host whose own
// libc is older, and use none of the host's libraries.
//
// SmallServer has the variables of servers that share a machine in a demo and in tests.
//
// The package starts `mysqld --version` and nothing else. It holds no state,
// owns no goroutine, and an Installation is never changed after Discover.
package install
