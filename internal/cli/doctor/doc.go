// Package doctor looks at a host and at a node's configuration, before the node's agent has
// started or while it runs, and says what is fit, what may hurt and what will not work.
//
//	configuration, status of the agent (if it runs) ──► Examine ──► Report: one Check a subject
//
// What it measures it measures itself: fdatasync on the disks of log and data, the time that a
// peer's host takes to answer, the clock's steps, what the kernel offers. What follows from the
// figures is decided by functions that read nothing (judge.go).
//
// It changes nothing on the host that stays: a file in the data directory while the disk is
// measured, ports that are opened for a moment, and for who may do so an nftables table about an
// address that nobody has. It never needs root. A Check that could not be made has the state
// CheckUnknown, and says what it could not look at.
//
// Examine takes measureTime for the disks, and its other measures go on meanwhile. A disk that
// does not answer is left to itself: the goroutine that waits for it ends with the process.
package doctor
