// Package binlog reads and writes MySQL binlog events, as far as replication needs: headers,
// checksums, GTIDs, control events, and where a transaction begins and ends. It decodes no
// rows.
//
// An event is a slice of bytes and stays where it is; nothing here copies one
// unless a comment says so. Integers are little-endian:
//
//	0           4      5           9        13        17      19
//	+-----------+------+-----------+--------+---------+-------+--------+-------+
//	| timestamp | type | server id | length | log pos | flags | body … | CRC32 |
//	+-----------+------+-----------+--------+---------+-------+--------+-------+
//	  u32, s      u8     u32         u32      u32       u16              u32
//
// length counts header, body and checksum. log pos is the event's end in its file, cut to 32
// bits: do not navigate by it. The CRC32 (IEEE) covers all bytes before it. Every function that
// takes an Event expects the checksum to be there: quorate runs mysqld with
// binlog_checksum=CRC32 only. The exception are the events inside a TRANSACTION_PAYLOAD event,
// which have none.
//
// A transaction is a GTID event and the events up to its end:
//
//	GTID  QUERY BEGIN  TABLE_MAP  ROWS …  XID              rows
//	GTID  QUERY BEGIN  …  QUERY COMMIT                     no transactional engine
//	GTID  QUERY <any other>                                DDL, XA COMMIT, XA ROLLBACK
//	GTID  QUERY XA START  …  QUERY XA END  XA_PREPARE      XA
//	GTID  TRANSACTION_PAYLOAD                              compressed
//
// Assembler finds these borders and refuses everything that does not fit, because a doubtful
// transaction must not be acknowledged.
//
// Sources of the formats: libs/mysql/binlog/event in MySQL 9.x (layout of each
// event, Transaction_boundary_parser), and the server's own output, kept in
// testdata.
//
// The package is pure: no goroutine, clock, I/O or randomness. Its input may come from a
// damaged file or a hostile peer: it returns an error, never panics, and its memory is bounded
// by the input or a named constant.
package binlog
