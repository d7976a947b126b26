package mysqlwire

import "encoding/binary"

// ackMagic is the first byte of an acknowledgement and the mark of a
// semi-synchronous stream (kPacketMagicNum, plugin/semisync/semisync.h).
const ackMagic = 0xef

// appendAck appends the packet that acknowledges everything up to position:
//
//	+-----------+----------+------+-----------------+------------------+
//	| u24 bytes | sequence | 0xEF | u64 LE position | binlog base name |
//	+-----------+----------+------+-----------------+------------------+
//
// The sequence number is always 0: the source's receiver resets its own before
// each read (sql/ack_receiver.cc). The name is compared by length first and
// must have no path (facts Q2), which is how it arrived in the stream.
func appendAck(dst []byte, position Position) []byte {
	dst = appendPacketHeader(dst, 1+8+len(position.File), 0)
	dst = append(dst, ackMagic)
	dst = binary.LittleEndian.AppendUint64(dst, position.Offset)
	return append(dst, position.File...)
}
