package seglog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/quorate/quorate/internal/mysql/binlog"
)

const (
	recordMagic   = "QREC"
	recordVersion = 1
	// recordSplit: the data continues behind the record's event.
	recordSplit = 1 << 0
	// recordStaged: the entry names a stage, whose bytes are the end of the file.
	recordStaged = 1 << 1

	recordPayloadBytes = 52
	// recordHeadBytes is the length of everything before the data.
	recordHeadBytes = binlog.HeaderBytes + recordPayloadBytes
	// chainedBytes is how much of the payload the chain covers.
	chainedBytes = recordPayloadBytes - 4

	// EntryBytesMax is the most data that an entry can have: mysqlbinlog
	// reads events of up to 1 GiB, and lengths must fit in 32 bits.
	EntryBytesMax = 1<<30 - recordHeadBytes - binlog.ChecksumBytes
)

// errNewer counts as errDamage until the record's checksum shows that nothing is damaged.
var errNewer = fmt.Errorf("%w: record of a later version", errDamage)

// record is the fixed part of a record, decoded.
type record struct {
	raftType    uint8
	index       uint64
	term        uint64
	durable     uint64
	dataBytes   uint32
	inlineBytes uint32
	seed        uint32
	dataCRC     uint32
	chain       uint32
	staged      bool
}

// eventBytes is the length of the record's event, bytes the length of the whole record.
func (r *record) eventBytes() int64 {
	return recordHeadBytes + int64(r.inlineBytes) + binlog.ChecksumBytes
}
func (r *record) bytes() int64 { return r.eventBytes() + int64(r.dataBytes) - int64(r.inlineBytes) }

// recordBytes is the length of the record of an entry with dataBytes of data, split or not.
func recordBytes(dataBytes int) int64 {
	return recordHeadBytes + int64(dataBytes) + binlog.ChecksumBytes
}

// appendHead appends what stands before the data of a record at offset. It sets r.chain from the chain value of
// the record before.
func (r *record) appendHead(dst []byte, offset int64, previousChain uint32) []byte {
	dst = appendEventHeader(dst, binlog.TypeIgnorable, binlog.FlagIgnorable, recordPayloadBytes+int(r.inlineBytes), offset)
	start := len(dst)
	dst = append(dst, recordMagic...)
	flags := byte(0)
	if r.inlineBytes < r.dataBytes {
		flags = recordSplit
	}
	if r.staged {
		flags |= recordStaged
	}
	dst = append(dst, recordVersion, r.raftType, flags, 0)
	dst = binary.LittleEndian.AppendUint64(dst, r.index)
	dst = binary.LittleEndian.AppendUint64(dst, r.term)
	dst = binary.LittleEndian.AppendUint64(dst, r.durable)
	dst = binary.LittleEndian.AppendUint32(dst, r.dataBytes)
	dst = binary.LittleEndian.AppendUint32(dst, r.inlineBytes)
	dst = binary.LittleEndian.AppendUint32(dst, r.seed)
	dst = binary.LittleEndian.AppendUint32(dst, r.dataCRC)
	r.chain = crc32.Update(previousChain, castagnoli(), dst[start:])
	return binary.LittleEndian.AppendUint32(dst, r.chain)
}

// parseRecordHead decodes the first recordHeadBytes of a record that stands at offset in a segment with the
// given seed. It verifies only that the lengths agree, and that the record belongs to this place.
func parseRecordHead(b []byte, offset int64, seed uint32) (record, error) {
	if len(b) < recordHeadBytes {
		return record{}, fmt.Errorf("%w: %d bytes, a record's head has %d", errDamage, len(b), recordHeadBytes)
	}
	event, p := binlog.Event(b), b[binlog.HeaderBytes:]
	if event.Type() != binlog.TypeIgnorable || string(p[:4]) != recordMagic {
		return record{}, fmt.Errorf("%w: no record", errDamage)
	}
	if p[4] > recordVersion {
		return record{}, fmt.Errorf("%w: version %d, this quorate reads %d", errNewer, p[4], recordVersion)
	}
	if p[4] != recordVersion {
		return record{}, fmt.Errorf("%w: record of version %d", errDamage, p[4])
	}
	r := record{
		raftType:    p[5],
		index:       binary.LittleEndian.Uint64(p[8:]),
		term:        binary.LittleEndian.Uint64(p[16:]),
		durable:     binary.LittleEndian.Uint64(p[24:]),
		dataBytes:   binary.LittleEndian.Uint32(p[32:]),
		inlineBytes: binary.LittleEndian.Uint32(p[36:]),
		seed:        binary.LittleEndian.Uint32(p[40:]),
		dataCRC:     binary.LittleEndian.Uint32(p[44:]),
		chain:       binary.LittleEndian.Uint32(p[48:]),
		staged:      p[6]&recordStaged != 0,
	}
	split := p[6]&recordSplit != 0
	switch {
	case r.dataBytes > EntryBytesMax || r.inlineBytes > r.dataBytes || split != (r.inlineBytes < r.dataBytes):
		return record{}, fmt.Errorf("%w: record with %d of %d bytes inline", errDamage, r.inlineBytes, r.dataBytes)
	case int64(event.Length()) != r.eventBytes():
		return record{}, fmt.Errorf("%w: event of %d bytes for a record of %d", errDamage, int64(event.Length()), r.eventBytes())
	case r.seed != seed:
		return record{}, fmt.Errorf("%w: record of another segment", errDamage)
	case event.LogPos() != uint32(offset+r.eventBytes()):
		return record{}, fmt.Errorf("%w: record of another place", errDamage)
	case r.staged && (split || r.durable < uint64(offset+r.eventBytes())):
		return record{}, fmt.Errorf("%w: record of a stage with durable %d", errDamage, r.durable)
	case !r.staged && r.durable > uint64(offset):
		return record{}, fmt.Errorf("%w: durable up to %d before it was written", errDamage, r.durable)
	}
	return r, nil
}

// parts verifies both checksums of a whole record and returns its data, which is in one or two pieces of b.
func (r *record) parts(b []byte) (inline, rest []byte, err error) {
	if int64(len(b)) != r.bytes() {
		return nil, nil, fmt.Errorf("%w: %d bytes for a record of %d", errDamage, len(b), r.bytes())
	}
	event, rest := b[:r.eventBytes()], b[r.eventBytes():]
	if err := binlog.VerifyChecksum(event); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errDamage, err)
	}
	inline = event[recordHeadBytes : len(event)-binlog.ChecksumBytes]
	if dataCRC(inline, rest) != r.dataCRC {
		return nil, nil, fmt.Errorf("%w: wrong checksum of the data", errDamage)
	}
	return inline, rest, nil
}

func dataCRC(inline, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum(inline, castagnoli()), castagnoli(), rest)
}

// data verifies a whole record and returns its data, which aliases b. The rest of b must not be used any more:
// if the data is in two pieces, the first is moved over the checksum between them.
func (r *record) data(b []byte) ([]byte, error) {
	inline, rest, err := r.parts(b)
	if err != nil || r.dataBytes == 0 {
		return nil, err
	}
	if len(rest) == 0 {
		return inline[:len(inline):len(inline)], nil
	}
	start := recordHeadBytes + binlog.ChecksumBytes
	copy(b[start:], inline)
	return b[start:len(b):len(b)], nil
}

// linked tells whether the record's chain continues previousChain. b is the record, or its head.
func (r *record) linked(b []byte, previousChain uint32) bool {
	return crc32.Update(previousChain, castagnoli(), b[binlog.HeaderBytes:][:chainedBytes]) == r.chain
}
