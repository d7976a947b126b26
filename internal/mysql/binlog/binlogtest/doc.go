// Package binlogtest makes binlog events as a mysqld would, for tests: one file after the
// other, with correct positions, lengths and checksums. It checks nothing, so tests can make
// broken streams, too.
//
// The package is pure, and for tests alone.
package binlogtest
