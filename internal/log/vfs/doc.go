// Package vfs is the small file system interface under all files of quorate that must survive a power loss, and
// the three file systems that implement it.
//
//	OS      the operating system's files
//	Mem     a file system in memory that can lose its power: CrashClone
//	        returns what a disk may hold afterwards
//	Wrap    any FS with hooks before each call: injected errors, latency
//
// Replace and WriteNew write a small file durably, Move renames one, and As sets the owner and mode of new
// files. All durable files that do not have a writer of their own format are written by these.
//
// The durability contract, which OS keeps by system calls and Mem by its model of a disk:
//
//   - What WriteAt and Truncate did is durable once Sync or SyncData of the
//     same file returned nil. Until then any subset of its 512-byte sectors may
//     survive, in any order and even without the file's new size.
//   - A created, linked, renamed or removed name is durable once SyncDir of its
//     directory returned nil. Until then each of these changes may survive or
//     not, independently of the others. One rename is atomic, and durable once
//     either of its directories was synced. SyncDir does not cover the content:
//     a file needs both, its own Sync and the SyncDir of its directory.
//   - MkdirAll is durable when it returns.
//   - After an error of Sync, SyncData or SyncDir nothing is known about changes
//     that were not durable before, and calling it again proves nothing (the
//     kernel reports a failed write-back once and forgets it).
//
// The package starts no goroutine. An FS and a File may be used by several
// goroutines at once.
package vfs
