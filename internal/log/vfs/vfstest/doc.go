// Package vfstest has what tests of durable files share. Interruptions ends a piece of work at each operation
// of its file system, and shows what is there afterwards.
//
// It owns nothing, starts no goroutine, and is imported by tests alone.
package vfstest
