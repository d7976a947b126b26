// Package errant saves the transactions that a mysqld has beyond the committed log, before a person
// rebuilds its node: they are copied from its binlogs into a directory that a rebuild leaves alone.
//
//	errant/
//	  20260301T120000Z-11000000_2/   when it was made, and the first transaction in it
//	    q0000000001.000001           the binlog file of that name, with the errant transactions alone
//	    saved.json                   Record
//	    README                       what a person can do with the files
//	  .tmp/                          a save under way; what is left of it is removed with the next
//
// The package owns that directory. It has no goroutine, and asks no server: mysqld has ended. mysqld's
// account may have changed the files of mysqld, so they are opened with care (mysqld.OpenFile).
//
// A save is complete or is not there: it is written under .tmp, synced, and renamed. A save is made
// once, is never changed, and stays until a person moves it away. The number of saves, their bytes
// and the share of the disk are bounded; what does not fit is an error, and leaves nothing.
package errant
