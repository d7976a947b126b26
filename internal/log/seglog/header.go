package seglog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Version is the version of the log's format. Part of the format.
const Version = 1

const (
	// stagedVersion is the version of a segment that holds a stage. A quorate that knows only version 1 would
	// cut the stage's bytes off as a torn tail. With this version it refuses the log instead.
	stagedVersion = 2

	segmentMagic       = "QSEG"
	segmentHeaderBytes = 52
	segmentPrefix      = "quorate."
	segmentNameDigits  = 20
	segmentTemporary   = "quorate.tmp"
	// previousGTIDsBytesMax bounds how much Open reads because of a damaged length. A set of this size has four
	// million intervals.
	previousGTIDsBytesMax = 64 << 20
)

// newerHint says, for a version that is not known here, that a newer quorate wrote it.
func newerHint(version uint16) string {
	if version > stagedVersion {
		return ": it was written by a newer quorate"
	}
	return ""
}

// castagnoli returns the table of CRC32C. The package hash/crc32 makes the table only once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func segmentName(first uint64) string {
	return fmt.Sprintf("%s%0*d", segmentPrefix, segmentNameDigits, first)
}

// parseSegmentName returns the first index in a segment's name.
func parseSegmentName(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, segmentPrefix)
	if !ok || len(digits) != segmentNameDigits {
		return 0, false
	}
	first, err := strconv.ParseUint(digits, 10, 64)
	return first, err == nil && segmentName(first) == name
}

// segmentHeader is the part of a segment before its records.
type segmentHeader struct {
	identity [16]byte
	// number counts the segments of a log from 1.
	number uint64
	// first is the index of the first record, even if there is no record yet.
	first uint64
	// previousTerm is the term of entry first-1; 0 if there is none.
	previousTerm uint64
	// previousChain is the last chain value of the segment before. seed starts the chain of records.
	// previousChain is 0 if the segment before was purged before Open: then the log's first entry is committed,
	// and its segment is never made again.
	previousChain, seed uint32
	// staged: the only record names a stage.
	staged bool
	// formatDescription is the event at the file's start.
	formatDescription []byte
	// gtidsBefore holds the transactions of all entries before first.
	gtidsBefore *gtid.Set
	// bytes is the length of the header: the offset of the first record.
	bytes int64
}

// append appends the header to dst and sets seed and bytes.
func (h *segmentHeader) append(dst []byte) []byte {
	start := len(dst)
	at := func() int64 { return int64(len(dst) - start) }
	dst = append(dst, binlog.Magic...)
	dst = append(dst, h.formatDescription...)
	dst = appendEvent(dst, binlog.TypePreviousGTIDs, binlog.FlagIgnorable, h.gtidsBefore.AppendBinary(nil), at())

	payload := make([]byte, 0, segmentHeaderBytes)
	payload = append(payload, segmentMagic...)
	version := uint16(Version)
	if h.staged {
		version = stagedVersion
	}
	payload = binary.LittleEndian.AppendUint16(payload, version)
	payload = append(payload, 0, 0)
	payload = append(payload, h.identity[:]...)
	payload = binary.LittleEndian.AppendUint64(payload, h.number)
	payload = binary.LittleEndian.AppendUint64(payload, h.first)
	payload = binary.LittleEndian.AppendUint64(payload, h.previousTerm)
	h.seed = crc32.Update(h.previousChain, castagnoli(), payload)
	payload = binary.LittleEndian.AppendUint32(payload, h.seed)
	dst = appendEvent(dst, binlog.TypeIgnorable, binlog.FlagIgnorable, payload, at())
	h.bytes = at()
	return dst
}

// follows tells whether the header was made behind a segment that ended with previousChain. It also keeps that
// value.
func (h *segmentHeader) follows(previousChain uint32) bool {
	h.previousChain = previousChain
	again := *h
	again.append(nil)
	return again.seed == h.seed
}

// parseSegmentHeader reads the header from the start of a segment. Errors that
// are not of I/O are errDamage or ErrFormat.
func parseSegmentHeader(w *window) (*segmentHeader, error) {
	magic, err := w.bytes(0, int64(len(binlog.Magic)))
	if err != nil {
		return nil, damaged("magic", err)
	}
	if string(magic) != binlog.Magic {
		return nil, fmt.Errorf("%w: no binlog magic", errDamage)
	}
	h := &segmentHeader{bytes: int64(len(binlog.Magic))}
	fde, err := h.cutEvent(w, binlog.TypeFormatDescription, formatDescriptionBytesMax)
	if err != nil {
		return nil, damaged("FORMAT_DESCRIPTION", err)
	}
	if fde.Flags()&binlog.FlagInUse != 0 {
		// The log never writes this flag, and the checksum does not cover it.
		return nil, damaged("FORMAT_DESCRIPTION", fmt.Errorf("%w: flags %#x", errDamage, fde.Flags()))
	}
	h.formatDescription = append([]byte(nil), fde...)
	previous, err := h.cutEvent(w, binlog.TypePreviousGTIDs, previousGTIDsBytesMax)
	if err != nil {
		return nil, damaged("PREVIOUS_GTIDS", err)
	}
	if h.gtidsBefore, err = binlog.ParsePreviousGTIDs(previous); err != nil {
		return nil, damaged("PREVIOUS_GTIDS", fmt.Errorf("%w: %w", errDamage, err))
	}
	own, err := h.cutEvent(w, binlog.TypeIgnorable, previousGTIDsBytesMax)
	if err != nil {
		return nil, damaged("segment header", err)
	}
	p := own.Body()
	if len(p) < 8 || string(p[:4]) != segmentMagic {
		return nil, fmt.Errorf("%w: no segment header", errDamage)
	}
	v := binary.LittleEndian.Uint16(p[4:])
	if v != Version && v != stagedVersion {
		return nil, fmt.Errorf("%w: segment has version %d, this quorate reads up to %d%s", ErrFormat, v, stagedVersion, newerHint(v))
	}
	h.staged = v == stagedVersion
	if len(p) != segmentHeaderBytes {
		return nil, fmt.Errorf("%w: segment header of %d bytes", errDamage, len(p))
	}
	copy(h.identity[:], p[8:])
	h.number = binary.LittleEndian.Uint64(p[24:])
	h.first = binary.LittleEndian.Uint64(p[32:])
	h.previousTerm = binary.LittleEndian.Uint64(p[40:])
	h.seed = binary.LittleEndian.Uint32(p[48:])
	return h, nil
}

// cutEvent returns the event at offset h.bytes and moves h.bytes behind it. The event is valid until w is used
// again.
func (h *segmentHeader) cutEvent(w *window, eventType binlog.Type, bytesMax int64) (binlog.Event, error) {
	header, err := w.bytes(h.bytes, binlog.HeaderBytes)
	if err != nil {
		return nil, err
	}
	event := binlog.Event(header)
	n := int64(event.Length())
	if event.Type() != eventType || n < binlog.HeaderBytes+binlog.ChecksumBytes || n > bytesMax {
		return nil, fmt.Errorf("%w: event of type %d with %d bytes", errDamage, event.Type(), n)
	}
	if event, err = w.bytes(h.bytes, n); err != nil {
		return nil, err
	}
	if err := binlog.VerifyChecksum(event); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamage, err)
	}
	h.bytes += n
	return event, nil
}
