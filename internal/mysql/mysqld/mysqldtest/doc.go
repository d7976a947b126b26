// Package mysqldtest makes new servers cheap, for tests alone.
//
// mysqld --initialize takes 3 s of a processor, and a cluster needs three. It leaves the same
// files every time, but for certificates and the server's UUID, which quorate replaces. Prefix
// makes a MySQL installation whose mysqld initialises once for each set of options, and copies
// that directory from then on. All else is the real installation: each program is a script that
// becomes the real program (exec), so process ids, signals and locks are as without it.
//
// It has no goroutine and no state but the directory that Prefix was given, which the caller
// removes.
package mysqldtest
