package gtid

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrEncoding is returned for bytes that are not the binary form of a set.
var ErrEncoding = errors.New("gtid: malformed encoding")

// taggedMark is the last (and first) byte of the head of the tagged layout.
// The classic layout has a 0 there: it counts fewer than 2^56 sources.
const taggedMark = 1

// sourcesMax is the highest number of sources that the tagged head can hold.
const sourcesMax = 1<<48 - 1

// intervalBytes is the length of an encoded interval: start and exclusive end.
const intervalBytes = 16

// AppendBinary appends the set's binary form (see the package comment) to dst.
// The layout is the classic one unless a GTID of the set has a tag.
func (s *Set) AppendBinary(dst []byte) []byte {
	tagged := false
	for _, g := range s.all() {
		tagged = tagged || g.Tag != ""
	}
	head := uint64(len(s.all()))
	if tagged {
		head = taggedMark | head<<8 | taggedMark<<56
	}
	dst = binary.LittleEndian.AppendUint64(dst, head)
	for _, g := range s.all() {
		dst = append(dst, g.UUID[:]...)
		if tagged {
			dst = append(append(dst, byte(len(g.Tag)<<1)), g.Tag...)
		}
		dst = binary.LittleEndian.AppendUint64(dst, uint64(len(g.intervals)))
		for _, iv := range g.intervals {
			dst = binary.LittleEndian.AppendUint64(dst, iv.Start)
			dst = binary.LittleEndian.AppendUint64(dst, iv.End+1)
		}
	}
	return dst
}

// DecodeBinary decodes the binary form in either layout. b must hold nothing
// else. It returns ErrEncoding, or ErrRange for an interval outside of 1..MaxN.
// Sources may come in any order, and intervals may touch or overlap.
func DecodeBinary(b []byte) (*Set, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("decode GTID set: %w: no head", ErrEncoding)
	}
	sources, tagged := binary.LittleEndian.Uint64(b), b[7] == taggedMark
	if tagged {
		sources = sources >> 8 & sourcesMax
	}
	b = b[8:]
	s := &Set{}
	// Each round consumes at least a UUID, so a false count ends with b.
	for range sources {
		var err error
		if b, err = s.decodeSource(b, tagged); err != nil {
			return nil, fmt.Errorf("decode GTID set: %w", err)
		}
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("decode GTID set: %w: %d bytes too many", ErrEncoding, len(b))
	}
	s.normalize()
	return s, nil
}

// decodeSource collects one source's intervals and returns what follows them.
func (s *Set) decodeSource(b []byte, tagged bool) ([]byte, error) {
	var u UUID
	if len(b) < len(u) {
		return nil, fmt.Errorf("%w: cut in a UUID", ErrEncoding)
	}
	b = b[copy(u[:], b):]
	var tag Tag
	if tagged {
		if len(b) == 0 || len(b) < 1+int(b[0]>>1) || b[0]&1 != 0 {
			return nil, fmt.Errorf("%w: cut in a tag", ErrEncoding)
		}
		end := 1 + int(b[0]>>1)
		var err error
		if tag, err = ParseTag(string(b[1:end])); err != nil {
			return nil, err
		}
		b = b[end:]
	}
	if len(b) < 8 {
		return nil, fmt.Errorf("%w: cut in a count", ErrEncoding)
	}
	n := binary.LittleEndian.Uint64(b)
	b = b[8:]
	if n > uint64(len(b)/intervalBytes) {
		return nil, fmt.Errorf("%w: %d intervals in %d bytes", ErrEncoding, n, len(b))
	}
	for range n {
		start, end := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		if err := s.collect(Source{u, tag}, start, end-1); err != nil {
			return nil, err
		}
		b = b[intervalBytes:]
	}
	return b, nil
}
