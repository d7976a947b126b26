package seglog

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// raftNormal is Raft's type of an entry that carries data of package entry.
const raftNormal = 0

// formatDescriptionBytesMax is far above the length in every server (126 bytes in 9.7).
const formatDescriptionBytesMax = 4096

// appendEventHeader appends the header of an event with a body of bodyBytes
// that begins at offset in its file. The timestamp and server id are 0.
func appendEventHeader(dst []byte, t binlog.Type, flags uint16, bodyBytes int, offset int64) []byte {
	length := binlog.HeaderBytes + bodyBytes + binlog.ChecksumBytes
	dst = append(dst, 0, 0, 0, 0, byte(t), 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(length))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(offset+int64(length)))
	return binary.LittleEndian.AppendUint16(dst, flags)
}

// appendEvent appends a whole event that begins at offset in its file.
func appendEvent(dst []byte, t binlog.Type, flags uint16, body []byte, offset int64) []byte {
	start := len(dst)
	dst = appendEventHeader(dst, t, flags, len(body), offset)
	dst = append(dst, body...)
	return binary.LittleEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[start:]))
}

// builtinFormatDescription returns the FORMAT_DESCRIPTION of segments before the first epoch, in the layout of
// MySQL 8.0. No transaction follows it, so no newer one is needed, and every mysqlbinlog reads it.
func builtinFormatDescription() []byte {
	const (
		binlogVersion      = 4
		serverVersion      = "8.0.30-quorate"
		serverVersionBytes = 50
		createdBytes       = 4
	)
	// The length of the fixed part of each event type's body, for the types 1 to 41, as the servers write it.
	// Type 15 is this event itself, up to the end of this list: 57 + 41.
	postHeaders := []byte{
		0, 13, 0, 8, 0, 0, 0, 0, 4, 0, 4, 0, 0, 0, 98, 0, 4, 26, 8, 0, 0, 0, 8, 8, 8, 2,
		0, 0, 0, 10, 10, 10, 42, 42, 0, 18, 52, 0, 10, 40, 0,
	}
	body := binary.LittleEndian.AppendUint16(nil, binlogVersion)
	body = append(body, serverVersion...)
	body = append(body, make([]byte, serverVersionBytes-len(serverVersion)+createdBytes)...)
	body = append(body, binlog.HeaderBytes)
	body = append(body, postHeaders...)
	body = append(body, byte(binlog.ChecksumCRC32))
	return appendEvent(nil, binlog.TypeFormatDescription, 0, body, int64(len(binlog.Magic)))
}

// formatDescriptionOf returns the FORMAT_DESCRIPTION that an epoch or rotate entry brings, with the flags of a
// closed file. opens is false for all other entries. fde is nil if a file cannot begin with the event: what
// Raft has agreed on is stored in any case.
func formatDescriptionOf(e *Entry) (fde []byte, opens bool) {
	if e.Type != raftNormal {
		return nil, false
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil {
		return nil, false
	}
	switch h.Kind {
	case entry.KindRotate:
	case entry.KindEpoch:
		epoch, err := entry.ParseEpoch(h, body)
		if err != nil {
			return nil, true
		}
		body = epoch.FormatDescription
	default:
		return nil, false
	}
	event, err := binlog.ParseEvent(body)
	if err != nil || len(event) > formatDescriptionBytesMax {
		return nil, true
	}
	parsed, err := binlog.ParseFormatDescription(event)
	if err != nil || parsed.Checksum != binlog.ChecksumCRC32 {
		return nil, true
	}
	clean, err := binlog.CleanFormatDescription(event, false)
	if err != nil {
		return nil, true
	}
	return clean, true
}

// splitTransactions says how an entry is stored. If its data is an entry header and then only whole, undamaged
// transactions, it returns true and dst with their GTIDs appended: these transactions can stand in the file as
// they are.
func splitTransactions(dst []gtid.GTID, e *Entry) ([]gtid.GTID, bool) {
	if e.Type != raftNormal {
		return dst, false
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil || h.Kind != entry.KindTransactions || len(body) == 0 {
		return dst, false
	}
	for event, err := range binlog.Events(body) {
		if err != nil || binlog.VerifyChecksum(event) != nil {
			return dst, false
		}
	}
	return appendGTIDs(dst, body)
}

// appendGTIDs appends the GTIDs of the transactions in body to dst. If body holds anything else, it returns
// false, and dst unchanged.
func appendGTIDs(dst []gtid.GTID, body []byte) ([]gtid.GTID, bool) {
	found, length := dst, 0
	for t, err := range binlog.Transactions(body) {
		if err != nil {
			return dst, false
		}
		found = append(found, t.GTID)
		length += len(t.Raw)
	}
	if length != len(body) {
		return dst, false
	}
	return found, true
}

// timeSpan is when the first and the last transaction were committed, in seconds since 1970 by the primary's
// clock; 0 = none. The time that a client has set for its session (SET timestamp, or a source that is followed)
// does not count, because retention goes by these times.
type timeSpan struct{ first, last int64 }

// add takes whole transactions that follow the earlier ones.
func (t *timeSpan) add(transactions []byte) {
	var last binlog.Event
	for e, err := range binlog.Events(transactions) {
		if err != nil {
			break
		}
		if e.Type() == binlog.TypeGTID || e.Type() == binlog.TypeGTIDTagged {
			if last = e; t.first == 0 {
				t.first = committed(e)
			}
		}
	}
	if last != nil {
		t.last = committed(last)
	}
}

// committed is when a transaction was committed, by its GTID event, in seconds since 1970.
func committed(event binlog.Event) int64 {
	info, err := binlog.ParseGTID(event)
	if err != nil {
		return int64(event.Timestamp()) // cannot happen: the event was parsed before it was stored
	}
	return binlog.CommitTime(event, &info).Unix()
}
