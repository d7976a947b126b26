// Package repository stores backups as a flat set of objects with names: in a directory, or in a
// store that the operator's four commands reach. Package archive defines the content of the
// objects.
//
//	Put ──► Seal: zstd ──► age, if there are recipients ──► directory, or put_command's stdin
//	Get ◄── Unseal ◄────────────────────────────────────── directory, or get_command's stdout
//
// # Contract
//
// Put is all or nothing: when it returns nil the object is there, whole and, in a directory, on disk. Otherwise List
// does not show the object, or still shows the earlier one; with commands that depends on what put_command does when
// it is killed. If the source of an object fails, put_command is killed before its input is closed, so it cannot take
// a part for the whole. If this process is killed, the kernel kills the command's shell. In a directory, the next Put
// removes unfinished files: a file that is being written is locked. Files of another host, whose lock may not be
// visible, are removed after 48 hours.
//
// If an object is cut off or was changed, Unseal's reader returns an error, at its end at the latest.
//
// # Bounds
//
// A name has at most 200 characters. A repository has at most ObjectsMax objects. The last 4 KiB of a
// command's error output are kept. A command that does nothing for Idle is killed. zstd uses windows of at
// most 8 MiB.
//
// # Goroutines
//
// One or two for each command, which end with the command; all commands end with their context. Those of
// zstd end with Close.
package repository
