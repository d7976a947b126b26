// Package repository is where backups are: a flat set of objects with names. It is a directory, or
// whatever four commands of an operator reach. What is in the objects is package archive's.
//
//	Put ──► Seal: zstd ──► age, if there are recipients ──► directory, or put_command's stdin
//	Get ◄── Unseal ◄────────────────────────────────────── directory, or get_command's stdout
//
// # Contract
//
// Put is all or nothing: when it returns nil the object is there, whole and, in a directory, on disk.
// Otherwise List does not show it, or still shows what was there before; of a command that is what the
// command does when it is killed. A writer that fails never looks like an end to a command: it is
// killed before its input is closed. If this process is killed, the kernel kills its shell. What a directory has of it then the
// next Put removes: a file that is written is locked. Of another host, which need not see the lock, it is removed after 48 hours.
//
// An object that is cut off, or was changed, is an error of Unseal's reader, at its end at the latest.
//
// # Bounds
//
// A name has at most 200 characters. A repository has at most ObjectsMax objects. Of what a command
// says 4 KiB are kept. A command that does nothing for Idle is killed. zstd uses windows of 8 MiB at most.
//
// # Goroutines
//
// One or two for each command, which end with it; all commands end with their context. zstd's own end with
// Close.
package repository
