// Package datadir owns the small durable files in an agent's data directory: who the
// directory belongs to, which other directories are known, the cluster state, the durable
// mark and so on. docs/formats.md lists them. The log and mysqld's files have owners of
// their own.
//
// # Writing
//
// A file is replaced as a whole (vfs.Replace): NAME.tmp is written and synced, takes the name, and the
// directory is synced. So after a crash a file is as it was before or as it is after. When
// a method that writes returns nil, what it wrote is on disk.
//
// # Reading
//
// A file that is missing is no error: the method says what that means. A file that cannot
// be used is a *DamageError or a *VersionError: which file, what is wrong, what to do.
//
// # Lives
//
// identity.json says in which Life the node is. WriteIdentity refuses a life that cannot follow
// the life on disk, also where the disk is gone from its mount point. It refuses fields that make
// no life, and Identity refuses to read them. Nobody else writes the file.
//
//	unborn ──► begun ──► member ──► superseded ──► joining, or member once recovered itself
//	     ├──► joining ──► member ──► joining (rebuilt)
//	     └──► member (adopted, or restored: by Found alone)
//	     any of these ──► removed
//
// A node that runs changes its life through a Home. In memory it is in a life only once that is
// on disk. SetAside moves what a rebuild gives up into a directory below old/. Locked is a Home in
// a real file system, with the directory's lock.
//
// # Goroutines
//
// None; Promises.Forget waits by a clock.Clock. Dir has no state: two calls that write the same
// file must not run at once. The other types have a lock.
package datadir
