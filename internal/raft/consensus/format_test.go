package consensus

import (
	"encoding/binary"

	"github.com/quorate/quorate/internal/mysql/binlog"
)

// testFormatDescription is a minimal FORMAT_DESCRIPTION event with CRC32.
func testFormatDescription() []byte {
	body := binary.LittleEndian.AppendUint16(nil, 4)
	body = append(body, make([]byte, 50)...)
	copy(body[2:], "9.7.4")
	body = append(body, 0, 0, 0, 0, 19)
	body = append(body, make([]byte, 42)...)
	body = append(body, 1) // CRC32
	e := make([]byte, binlog.HeaderBytes, binlog.HeaderBytes+len(body)+binlog.ChecksumBytes)
	e[4] = byte(binlog.TypeFormatDescription)
	e = append(append(e, body...), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(e[9:], uint32(len(e)))
	binlog.PutChecksum(e)
	return e
}
