// Package nowait writes to a connection from a goroutine that must not wait: it writes as much as the
// kernel takes at once. The caller gives the rest to a goroutine that may wait.
//
// Often there is no rest, and the other goroutine need not be woken: on the path of a commit that wake costs
// more than the write.
package nowait
