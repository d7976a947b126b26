package gtid

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxN is the highest number of a GTID: mysqld keeps 2^63-1 as its end mark
// (GNO_END in sql/rpl_gtid.h).
const MaxN uint64 = 1<<63 - 2

// TagBytesMax is the length of the longest tag.
const TagBytesMax = 32

// uuidTextBytes is the length of a UUID as text: 32 digits and 4 dashes.
const uuidTextBytes = 36

// ErrSyntax is returned for text that is no UUID, tag, GTID or set.
var ErrSyntax = errors.New("gtid: malformed text")

// ErrRange is returned for a number outside of 1..MaxN or an empty interval.
var ErrRange = errors.New("gtid: number out of range")

// UUID is a server_uuid.
type UUID [16]byte

// ParseUUID parses the form 8-4-4-4-12 with digits of either case. It returns
// ErrSyntax for anything else.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != uuidTextBytes || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return UUID{}, fmt.Errorf("parse UUID %.64q: %w", s, ErrSyntax)
	}
	digits := make([]byte, 0, 2*len(u))
	for _, part := range [...]string{s[:8], s[9:13], s[14:18], s[19:23], s[24:]} {
		digits = append(digits, part...)
	}
	if _, err := hex.Decode(u[:], digits); err != nil {
		return UUID{}, fmt.Errorf("parse UUID %.64q: %w", s, ErrSyntax)
	}
	return u, nil
}

// String returns the form 8-4-4-4-12 in lower case.
func (u UUID) String() string {
	return string(u.appendText(make([]byte, 0, uuidTextBytes)))
}

func (u UUID) appendText(dst []byte) []byte {
	dst = append(hex.AppendEncode(dst, u[:4]), '-')
	dst = append(hex.AppendEncode(dst, u[4:6]), '-')
	dst = append(hex.AppendEncode(dst, u[6:8]), '-')
	dst = append(hex.AppendEncode(dst, u[8:10]), '-')
	return hex.AppendEncode(dst, u[10:])
}

// Tag is a GTID's tag in its normal form, lower case; "" is no tag. A value that does not come
// from ParseTag must already have that form.
type Tag string

// ParseTag normalises s as mysqld does: white space around it is cut, letters
// become lower case. Empty text is no tag. It returns ErrSyntax unless s then
// is up to 32 characters of [a-z_][a-z0-9_]*.
func ParseTag(s string) (Tag, error) {
	s = strings.ToLower(strings.Trim(s, whiteSpace))
	if len(s) > TagBytesMax {
		return "", fmt.Errorf("parse tag %.64q: longer than %d: %w", s, TagBytesMax, ErrSyntax)
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && c != '_' && (i == 0 || c < '0' || c > '9') {
			return "", fmt.Errorf("parse tag %q: %w", s, ErrSyntax)
		}
	}
	return Tag(s), nil
}

// Source is a server and a tag; it numbers its GTIDs from 1. mysqld calls it TSID.
type Source struct {
	UUID UUID
	Tag  Tag
}

// compare orders sources as mysqld prints them: by UUID, then by tag.
func (s Source) compare(o Source) int {
	if c := bytes.Compare(s.UUID[:], o.UUID[:]); c != 0 {
		return c
	}
	return cmp.Compare(s.Tag, o.Tag)
}

// GTID names one transaction.
type GTID struct {
	UUID UUID
	Tag  Tag
	// N counts the transactions of UUID and Tag from 1 up to MaxN.
	N uint64
}

// Source returns g without its number.
func (g GTID) Source() Source { return Source{UUID: g.UUID, Tag: g.Tag} }

// String returns "uuid:n" or "uuid:tag:n".
func (g GTID) String() string {
	b := append(g.UUID.appendText(make([]byte, 0, 64)), ':')
	if g.Tag != "" {
		b = append(append(b, g.Tag...), ':')
	}
	return string(strconv.AppendUint(b, g.N, 10))
}

// ParseGTID parses "uuid:n" or "uuid:tag:n"; white space may surround each
// part. It returns ErrSyntax, or ErrRange if the number is not in 1..MaxN.
func ParseGTID(s string) (GTID, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 2 && len(parts) != 3 {
		return GTID{}, fmt.Errorf("parse GTID %.128q: %w", s, ErrSyntax)
	}
	var g GTID
	var err error
	if g.UUID, err = ParseUUID(strings.Trim(parts[0], whiteSpace)); err != nil {
		return GTID{}, fmt.Errorf("parse GTID %.128q: %w", s, err)
	}
	if len(parts) == 3 {
		if g.Tag, err = ParseTag(parts[1]); err == nil && g.Tag == "" {
			err = ErrSyntax
		}
		if err != nil {
			return GTID{}, fmt.Errorf("parse GTID %.128q: %w", s, err)
		}
	}
	if g.N, err = parseN(parts[len(parts)-1]); err != nil {
		return GTID{}, fmt.Errorf("parse GTID %.128q: %w", s, err)
	}
	return g, nil
}

// parseN parses a GTID's number in 1..MaxN.
func parseN(s string) (uint64, error) {
	s = strings.Trim(s, whiteSpace)
	n, err := strconv.ParseUint(s, 10, 64)
	if errors.Is(err, strconv.ErrRange) || err == nil && (n == 0 || n > MaxN) {
		return 0, fmt.Errorf("number %.64q: %w", s, ErrRange)
	}
	if err != nil {
		return 0, fmt.Errorf("number %.64q: %w", s, ErrSyntax)
	}
	return n, nil
}
