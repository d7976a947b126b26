// Package nowait writes to a connection from a goroutine that must not wait: as much as the
// kernel takes at once. The caller gives the rest to a goroutine that may wait.
//
// That saves the wake of the other goroutine, which on the path of a commit costs more
// than the write.
package nowait
