// Package binlogtest makes binlog events as a mysqld would, for tests: one file
// after the other, with positions, lengths and checksums that fit. It checks
// nothing, so that tests can spoil what it made.
//
// The package is pure, and for tests alone.
package binlogtest
