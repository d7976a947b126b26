package binlog

import (
	"encoding/binary"
	"fmt"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// ParseRotate parses a ROTATE event, fake or real. It returns the name of the next file, and
// the position in it.
func ParseRotate(e Event) (name string, pos uint64, err error) {
	body := e.Body()
	if e.Type() != TypeRotate || len(body) < 9 {
		return "", 0, fmt.Errorf("parse ROTATE: %w: type %d, %d bytes", ErrMalformed, e.Type(), len(e))
	}
	return string(body[8:]), binary.LittleEndian.Uint64(body), nil
}

// AppendFakeRotate appends the ROTATE event by which a source tells a replica the file and the
// position of the events that follow.
func AppendFakeRotate(dst []byte, serverID uint32, name string, pos uint64) []byte {
	start := len(dst)
	dst = beginEvent(dst, TypeRotate, serverID, 0, 0, FlagArtificial)
	dst = binary.LittleEndian.AppendUint64(dst, pos)
	return endEvent(append(dst, name...), start)
}

// ParsePreviousGTIDs parses a PREVIOUS_GTIDS event: the GTIDs of all files before its own file.
func ParsePreviousGTIDs(e Event) (*gtid.Set, error) {
	if e.Type() != TypePreviousGTIDs {
		return nil, fmt.Errorf("parse PREVIOUS_GTIDS: %w: type %d", ErrMalformed, e.Type())
	}
	set, err := gtid.DecodeBinary(e.Body())
	if err != nil {
		return nil, fmt.Errorf("parse PREVIOUS_GTIDS: %w: %w", ErrMalformed, err)
	}
	return set, nil
}

// AppendPreviousGTIDs appends a PREVIOUS_GTIDS event. timestamp is in seconds
// since 1970; logPos is the event's end in its file.
func AppendPreviousGTIDs(dst []byte, serverID, timestamp, logPos uint32, set *gtid.Set) []byte {
	start := len(dst)
	dst = beginEvent(dst, TypePreviousGTIDs, serverID, timestamp, logPos, FlagIgnorable)
	return endEvent(set.AppendBinary(dst), start)
}

// AppendIgnorable appends an IGNORABLE event that carries payload: mysqld and
// mysqlbinlog skip it. The log keeps Raft's facts in such events.
func AppendIgnorable(dst []byte, serverID uint32, payload []byte) []byte {
	start := len(dst)
	dst = beginEvent(dst, TypeIgnorable, serverID, 0, 0, FlagIgnorable)
	return endEvent(append(dst, payload...), start)
}

// Fields of a HEARTBEAT_V2 event's body: each is type, length and value, the
// first two length-encoded (codecs/binary.cpp).
const (
	heartbeatEnd  = 0
	heartbeatName = 1
	heartbeatPos  = 2
)

// ParseHeartbeat parses a heartbeat of either version: the source's current
// file and the position up to which it has sent, or skipped, everything. The
// position of version 1 has 32 bits.
func ParseHeartbeat(e Event) (name string, pos uint64, err error) {
	switch body := e.Body(); e.Type() {
	case TypeHeartbeat:
		if len(body) == 0 {
			return "", 0, fmt.Errorf("parse heartbeat: %w: no file name", ErrMalformed)
		}
		return string(body), uint64(e.LogPos()), nil
	case TypeHeartbeatV2:
		if name, pos, err = parseHeartbeatV2(body); err != nil {
			return "", 0, fmt.Errorf("parse heartbeat: %w", err)
		}
		return name, pos, nil
	}
	return "", 0, fmt.Errorf("parse heartbeat: %w: type %d", ErrMalformed, e.Type())
}

func parseHeartbeatV2(b []byte) (name string, pos uint64, err error) {
	for {
		var field tlv
		if field, b, err = cutTLV(b); err != nil {
			return "", 0, err
		}
		switch field.kind {
		case heartbeatEnd:
			if name == "" {
				return "", 0, fmt.Errorf("%w: no file name", ErrMalformed)
			}
			return name, pos, nil
		case heartbeatName:
			name = string(field.value)
		case heartbeatPos:
			if pos, _, err = CutNetInt(field.value); err != nil {
				return "", 0, err
			}
		}
	}
}

// AppendHeartbeat appends a heartbeat of version 1.
func AppendHeartbeat(dst []byte, serverID uint32, name string, pos uint32) []byte {
	start := len(dst)
	dst = beginEvent(dst, TypeHeartbeat, serverID, 0, pos, 0)
	return endEvent(append(dst, name...), start)
}

// AppendHeartbeatV2 appends a heartbeat of version 2, for a replica that asked
// for it by USE_HEARTBEAT_EVENT_V2 in its dump request.
func AppendHeartbeatV2(dst []byte, serverID uint32, name string, pos uint64) []byte {
	start := len(dst)
	dst = beginEvent(dst, TypeHeartbeatV2, serverID, 0, 0, 0)
	dst = AppendNetInt(append(dst, heartbeatName), uint64(len(name)))
	dst = append(dst, name...)
	dst = append(dst, heartbeatPos, byte(netIntBytes(pos)))
	return endEvent(append(AppendNetInt(dst, pos), heartbeatEnd), start)
}

// tlv is one field of a list that ends with kind 0, which has no value.
type tlv struct {
	kind  uint64
	value []byte
}

func cutTLV(b []byte) (tlv, []byte, error) {
	kind, b, err := CutNetInt(b)
	if err != nil || kind == 0 {
		return tlv{}, b, err
	}
	n, b, err := CutNetInt(b)
	if err != nil {
		return tlv{}, nil, err
	}
	if n > uint64(len(b)) {
		return tlv{}, nil, fmt.Errorf("%w: field %d has %d bytes of %d", ErrMalformed, kind, n, len(b))
	}
	return tlv{kind, b[:n]}, b[n:], nil
}
