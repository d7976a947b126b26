package mysqlwire

import (
	"encoding/binary"
	"fmt"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Commands of the client/server protocol (include/my_command.h).
const (
	comQuit           = 0x01
	comQuery          = 0x03
	comPing           = 0x0e
	comBinlogDump     = 0x12
	comRegisterSlave  = 0x15
	comBinlogDumpGTID = 0x1e
)

// flagHeartbeatV2 asks for heartbeats with 64-bit positions
// (USE_HEARTBEAT_EVENT_V2, sql/rpl_constants.h).
const flagHeartbeatV2 = 1 << 1

// binlogMagicBytes is where the first event of a binlog file starts.
const binlogMagicBytes = 4

// dumpRequest is COM_BINLOG_DUMP_GTID, integers little-endian:
//
//	+------+-------+-----------+------------+------+--------+-----------+----------+
//	| 0x1E | flags | server id | name bytes | name | offset | set bytes | GTID set |
//	+------+-------+-----------+------------+------+--------+-----------+----------+
//	  u8     u16     u32         u32                 u64      u32
//
// The set holds the transactions that the replica does not want. With a name and offset other
// than ("", 4), a semi-synchronous dump would count as an acknowledgement of that position, so
// the tap never sends another.
type dumpRequest struct {
	flags    uint16
	serverID uint32
	file     string
	offset   uint64
	exclude  *gtid.Set
}

func (d dumpRequest) payload() []byte {
	dst := binary.LittleEndian.AppendUint16([]byte{comBinlogDumpGTID}, d.flags)
	dst = binary.LittleEndian.AppendUint32(dst, d.serverID)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(d.file)))
	dst = append(dst, d.file...)
	dst = binary.LittleEndian.AppendUint64(dst, d.offset)
	set := d.exclude.AppendBinary(nil)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(set)))
	return append(dst, set...)
}

// parseDumpRequest decodes the payload of COM_BINLOG_DUMP_GTID.
func parseDumpRequest(payload []byte) (dumpRequest, error) {
	malformed := fmt.Errorf("%w: dump request of %d bytes", ErrMalformed, len(payload))
	if len(payload) < 11 || payload[0] != comBinlogDumpGTID {
		return dumpRequest{}, malformed
	}
	d := dumpRequest{
		flags:    binary.LittleEndian.Uint16(payload[1:]),
		serverID: binary.LittleEndian.Uint32(payload[3:]),
	}
	nameBytes, rest := uint64(binary.LittleEndian.Uint32(payload[7:])), payload[11:]
	if uint64(len(rest)) < nameBytes+12 {
		return dumpRequest{}, malformed
	}
	d.file, rest = string(rest[:nameBytes]), rest[nameBytes:]
	d.offset = binary.LittleEndian.Uint64(rest)
	setBytes, rest := uint64(binary.LittleEndian.Uint32(rest[8:])), rest[12:]
	if uint64(len(rest)) != setBytes {
		return dumpRequest{}, malformed
	}
	var err error
	if d.exclude, err = gtid.DecodeBinary(rest); err != nil {
		return dumpRequest{}, fmt.Errorf("decode dump request: %w", err)
	}
	return d, nil
}

// registerRequest is COM_REGISTER_SLAVE: it makes the tap appear in SHOW
// REPLICAS. Host, user and password stay empty: mysqld only displays them.
func registerRequest(serverID uint32) []byte {
	dst := binary.LittleEndian.AppendUint32([]byte{comRegisterSlave}, serverID)
	dst = append(dst, 0, 0, 0)    // host, user, password: length-prefixed
	dst = append(dst, 0, 0)       // port
	dst = append(dst, 0, 0, 0, 0) // recovery rank, unused
	return append(dst, 0, 0, 0, 0)
}
