// Package entry is the codec of what one Raft log entry carries.
//
// An entry's data is a fixed header and a body. Integers are little-endian.
//
//	 0      1         2       4         8        16        24
//	+------+---------+-------+---------+--------+---------+--------
//	| kind | version | zero  | count   | term   | number  | body …
//	+------+---------+-------+---------+--------+---------+--------
//	  u8     u8        u16     u32       u64      u64
//
// term and number are what makes I2 checkable. A term has at most one epoch,
// so the term names it: a leader that has to open a second one resigns and
// campaigns first. number counts the epoch's proposals from 1 without a gap
// (the epoch entry itself has number 0). Both fields are checked when the
// entry is proposed and again when it commits. State entries are outside of
// this: they are of no epoch and are not counted.
//
// Bodies:
//
//	KindEpoch         u16 len + primary's node name | 16-byte server UUID |
//	                  u16 len + server version | FORMAT_DESCRIPTION event
//	KindTransactions  count whole transactions: the raw binlog events, with
//	                  their checksums, as the primary's mysqld wrote them
//	KindRotate        FORMAT_DESCRIPTION event of the next binlog file
//	KindStaged        u64 bytes | u32 CRC32C | u8 flags, 3 zero | u32 len + GTID
//	                  event | last event: names a transaction too large for an
//	                  entry, whose bytes are in a stage (see Staged)
//	KindState         JSON of a cluster.StateChange
//
// Raft's own empty entry (the no-op of a new leader) has no header: empty data.
//
// The package is pure: no goroutine, clock, I/O or randomness. The layout is
// part of the on-disk and wire format (docs/formats.md); do not change it,
// raise Version instead.
package entry
