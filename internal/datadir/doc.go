// Package datadir owns the small durable files in an agent's data directory: who the
// directory belongs to, which other directories are known, the cluster state, the durable
// mark and so on. docs/formats.md lists them. The log and mysqld's files have owners of
// their own.
//
// # Writing
//
// A file is replaced as a whole: NAME.tmp is written and synced, takes the name, and the
// directory is synced. So after a crash a file is as it was before or as it is after. When
// a method that writes returns nil, what it wrote is on disk.
//
// # Reading
//
// A file that is missing is no error: the method says what that means. A file that cannot
// be used is a *DamageError or a *VersionError: which file, what is wrong, what to do.
//
// # Goroutines
//
// None. Dir has no state: two calls that write the same file must not run at once. The
// other types have a lock.
package datadir
