// Package local is the mysqld of this node. It starts and ends the process. The steps of package primary have no
// server of their own: they ask and change mysqld through this package. The steps decide, and so do the packages that
// local asks: standstill (does mysqld, or its disk, stand still?), prepared (what have clients done to XA
// transactions here?), variables, errant.
//
//	primary.Shell ──► Mysqld: StartMysqld, StopMysqld, KillMysqld ──► mysqld.Process
//	primary's steps ──► Mysqld.Local ──► running: one process, and its administrative sessions
//	primary.Watch ──► running: Probes ──► the board's troubles, Node.Doubt
//
// It owns which process runs, what was found of it at the last look (grants, certificate, time zone), and the
// installation from which it was started. Code that needs the process asks Mysqld.Process each time: it may be another
// process, or none.
//
// # Goroutines
//
// One for each process, which reports its end; a look for XA transactions that clients have ended, one at a time; and
// Run, which writes to mysqld's disk. All but Run are Config.Tasks. Nothing is durable here.
package local
