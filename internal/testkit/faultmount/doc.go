// Package faultmount is a disk that fails on command: a FUSE file system that
// passes everything through to a directory. Reads, writes, syncs and
// changes of names can be made to fail, to take long or to hang, and the disk can
// lose its power. It is for tests with real programs, which cannot run on
// package vfs.
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
// A separate process serves the file system: Start starts it from the
// running program (ServeChild is its main function). A program that waits for a
// file system which it serves itself would wait for ever. The process ends, and the
// mount with it, when the program that started it ends, in whatever way. Programs that
// still use the file system then get errors, and nothing keeps hanging.
//
// # What an operation does
//
// Each operation waits until no fault holds it, and fails if a fault says so. Otherwise it
// is done in the source. A held operation cannot be interrupted, as on a disk that
// does not answer: its process cannot be killed before the operation is let go. The kernel's
// cache answers no read: if a file grows while its attributes are read, the cache
// would show zeros. Names and attributes are
// cached, and never made to fail.
//
// # Loss of power
//
// CutPower undoes all writes to a file, and all changes of its size, since
// the last successful sync of that file. From then on everything fails with EIO.
// The former content is kept in memory, at most unsyncedBytesMax for a file;
// above that the file is synced, as a kernel may do at any time. Changes of names, owners,
// modes and times are durable at once. So it is a harsh disk with a kind
// directory: package vfs tests the other combinations.
package faultmount
