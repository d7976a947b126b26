// Package local is the mysqld of this node: it starts and ends the process, and is what the steps of package primary,
// which have no server of their own, ask and change. Decisions are theirs, and those of the packages that it asks:
// standstill (does mysqld, or its disk, stand still?), prepared (what have clients done to XA transactions here?),
// variables, errant.
//
//	primary.Shell ──► Mysqld: StartMysqld, StopMysqld, KillMysqld ──► mysqld.Process
//	primary's steps ──► Mysqld.Local ──► running: one process, and its administrative sessions
//	primary.Watch ──► running: Probes ──► the board's troubles, Node.Doubt
//
// It owns which process runs, what was found of it at the last look (grants, certificate), and the installation from
// which it was started. Who else needs the process asks Mysqld.Process each time: it may be another one, or none.
//
// # Goroutines
//
// One for each process, which reports its end; a look for XA transactions that clients have ended, one at a time; and
// Run, which writes to mysqld's disk. All but Run are Config.Tasks. Nothing is durable here.
package local
