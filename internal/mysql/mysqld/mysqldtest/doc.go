// Package mysqldtest makes new servers cheap, for tests alone.
//
// mysqld --initialize takes 3 s of a processor, and a cluster needs three runs. It makes the
// same files every time, except certificates and the server's UUID, which quorate replaces.
// Prefix makes a MySQL installation whose mysqld initialises once for each set of options, and
// copies that directory from then on. Everything else is the real installation: each program is
// a script that execs the real program, so process ids, signals and locks are the same.
//
// A Plain has one goroutine while its server runs. The caller removes the directory that it
// gave to Prefix.
package mysqldtest
