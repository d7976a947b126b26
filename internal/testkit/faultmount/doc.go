// Package faultmount is a disk that fails on command: a FUSE file system that
// passes everything through to a directory, and in which reads, writes, syncs and
// changes of names can be made to fail, to take long or to hang, and which can
// lose its power. It is for tests with real programs, which package vfs cannot be
// put under.
//
//	m, err := faultmount.Start(ctx, source, at)   // source is what at shows
//	m.SetFaults(faultmount.Fault{Ops: faultmount.Sync, Path: "quorate.*", Errno: syscall.EIO})
//	m.SetFaults()                                 // the disk is well again
//	m.Close()
//
// It needs /dev/fuse and the right to mount.
//
// # The process
//
// The file system is served by a process of its own, which Start makes of the
// running program (ServeChild is its main function): a program that waits for a
// file system which it serves itself would wait for ever. It ends, and takes the
// mount with it, when the program that started it does, in whatever way. Whoever
// still uses the file system then gets errors, and nothing keeps hanging.
//
// # What an operation does
//
// Each operation waits until no fault holds it, and fails if one says so; then it
// is done in the source. A held operation cannot be interrupted, as on a disk that
// does not answer: a process in it cannot be killed before it is let go. No
// read is answered from the kernel's cache: of a file that grows while its
// attributes are asked for, the cache shows zeros. Names and attributes are
// cached, and never made to fail.
//
// # Loss of power
//
// CutPower undoes what was written to a file, and every change of its size, since
// the last sync of that file succeeded; from then on everything fails with EIO.
// What was there before is kept in memory, at most unsyncedBytesMax for a file;
// above, the file is synced, as a kernel may do at any time. Changes of names are
// durable at once, owners, modes and times, too. So it is a harsh disk with a kind
// directory: package vfs tests the other combinations.
package faultmount
