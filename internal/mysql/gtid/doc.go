// Package gtid holds MySQL's global transaction identifiers and sets of them.
//
// A GTID is UUID[:tag]:N: the server that first ran the transaction, an
// optional tag (MySQL 8.3+), and a number that counts from 1. A Set keeps, per
// source (UUID and tag), sorted disjoint intervals that do not touch; so two
// sets are equal exactly when their representations are.
//
// Text form, as mysqld prints @@gtid_executed, but without the newlines:
//
//	uuid:1-5:7:tag:1-2,uuid2:3
//
// Binary form, as it travels in COM_BINLOG_DUMP_GTID and in a
// PREVIOUS_GTIDS event; integers are little-endian. It is the classic layout
// if no GTID of the set has a tag (all versions), else the tagged one (8.3+):
//
//	classic   +---------+ { +----------+-------------+ { +-------+-----+ } }
//	          | sources |   | UUID     | intervals   |   | start | end |
//	          +---------+   +----------+-------------+   +-------+-----+
//	            u64           16 bytes   u64               u64     u64, exclusive
//
//	tagged    +---+---------+---+ { +----------+-----------+-----+-------------+ { +-------+-----+ } }
//	          | 1 | sources | 1 |   | UUID     | length*2  | tag | intervals   |   | start | end |
//	          +---+---------+---+   +----------+-----------+-----+-------------+   +-------+-----+
//	           u8   u48      u8       16 bytes   u8                u64               u64     u64
//
// A tagged set lists a UUID once for each of its tags. The 1 in the last byte of the head tells
// the layouts apart. length*2 is mysqld's variable-length integer; lengths up to 32 need one
// byte.
//
// A *Set belongs to one goroutine while it changes. Any number of goroutines may read a set
// that does not change. The package is pure: no goroutine, clock, I/O or randomness.
package gtid
