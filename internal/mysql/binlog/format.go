package binlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// ChecksumAlgorithm is a file's binlog_checksum.
type ChecksumAlgorithm uint8

// The checksum algorithms.
const (
	ChecksumOff   ChecksumAlgorithm = 0
	ChecksumCRC32 ChecksumAlgorithm = 1
)

// Layout of a FORMAT_DESCRIPTION event's body:
//
//	0         2                52        56       57                     n
//	+---------+----------------+---------+--------+----------------------+-----------+
//	| version | server version | created | header | post-header length   | checksum  |
//	|         | NUL padded     |         | bytes  | of type 1, 2, …      | algorithm |
//	+---------+----------------+---------+--------+----------------------+-----------+
//	  u16       50 bytes         u32, s    u8       u8 each                u8
//
// The event itself has a checksum with either algorithm.
const (
	formatServerVersion = 2
	formatCreated       = 52
	formatHeaderBytes   = 56
	formatPostHeaders   = 57
)

// binlogVersion is the only version of the format since MySQL 5.0.
const binlogVersion = 4

// FormatDescription is the event that gives the format of the events after it.
type FormatDescription struct {
	// BinlogVersion is 4.
	BinlogVersion uint16
	// ServerVersion is the version of the mysqld that wrote the file, such as "9.7.4".
	ServerVersion string
	// Created is when the server started, in seconds since 1970, in the first
	// file after a start; else 0.
	Created uint32
	// PostHeaderBytes are the lengths of the fixed parts of event types 1, 2, …. A mysqld
	// refuses an event whose type is higher than the number of these lengths.
	PostHeaderBytes []byte
	Checksum        ChecksumAlgorithm
}

// ParseFormatDescription parses a FORMAT_DESCRIPTION event. PostHeaderBytes
// aliases e. It returns ErrMalformed for another event, binlog version or
// header length.
func ParseFormatDescription(e Event) (FormatDescription, error) {
	body := e.Body()
	if e.Type() != TypeFormatDescription || len(body) < formatPostHeaders+1 {
		return FormatDescription{}, fmt.Errorf("parse FORMAT_DESCRIPTION: %w: type %d, %d bytes", ErrMalformed, e.Type(), len(e))
	}
	version, _, _ := bytes.Cut(body[formatServerVersion:formatCreated], []byte{0})
	end := len(body) - 1
	fd := FormatDescription{
		BinlogVersion:   binary.LittleEndian.Uint16(body),
		ServerVersion:   string(version),
		Created:         binary.LittleEndian.Uint32(body[formatCreated:]),
		PostHeaderBytes: body[formatPostHeaders:end:end],
		Checksum:        ChecksumAlgorithm(body[end]),
	}
	if fd.BinlogVersion != binlogVersion || body[formatHeaderBytes] != HeaderBytes {
		return FormatDescription{}, fmt.Errorf("parse FORMAT_DESCRIPTION: %w: binlog version %d, header of %d bytes",
			ErrMalformed, fd.BinlogVersion, body[formatHeaderBytes])
	}
	return fd, nil
}

// CleanFormatDescription returns a copy of a FORMAT_DESCRIPTION event as a
// source sends it: FlagInUse cleared, the checksum right. A source that starts
// in the middle of a file (midFile) also clears log pos, so that the replica
// does not count the event's bytes into its position, and Created: an applier
// that sees a Created takes it for a restart of the source and drops the
// temporary tables of the replication threads (Binlog_sender::
// send_format_description_event in sql/rpl_binlog_sender.cc).
func CleanFormatDescription(e Event, midFile bool) (Event, error) {
	if _, err := ParseFormatDescription(e); err != nil {
		return nil, err
	}
	out := bytes.Clone(e)
	binary.LittleEndian.PutUint16(out[offsetFlags:], e.Flags()&^FlagInUse)
	if midFile {
		binary.LittleEndian.PutUint32(out[offsetLogPos:], 0)
		binary.LittleEndian.PutUint32(out[HeaderBytes+formatCreated:], 0)
	}
	PutChecksum(out)
	return out, nil
}
