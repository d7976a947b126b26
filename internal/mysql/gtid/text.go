package gtid

import (
	"fmt"
	"strconv"
	"strings"
)

// whiteSpace is what mysqld skips between the parts of a set's text.
const whiteSpace = " \t\r\n\v\f"

// String returns the canonical text: sources sorted, UUIDs and tags in lower
// case, a UUID once with all its tags behind it, "," without a newline.
func (s *Set) String() string {
	var b []byte
	var last Source
	for i, g := range s.all() {
		if i == 0 || g.UUID != last.UUID {
			if i > 0 {
				b = append(b, ',')
			}
			b = g.UUID.appendText(b)
		}
		if g.Tag != "" {
			b = append(append(b, ':'), g.Tag...)
		}
		for _, iv := range g.intervals {
			b = strconv.AppendUint(append(b, ':'), iv.Start, 10)
			if iv.End > iv.Start {
				b = strconv.AppendUint(append(b, '-'), iv.End, 10)
			}
		}
		last = g.Source
	}
	return string(b)
}

// ParseSet parses the text of a set: "uuid:[tag:]interval[:[tag:]interval]…", joined by commas.
// White space and newlines may stand between the parts, elements may be empty, letters may be
// of either case, intervals in any order and overlapping; a tag is valid up to the next tag or
// comma. It returns ErrSyntax or ErrRange. It is stricter than mysqld in two points: a UUID
// needs an interval, and an interval such as 5-3 is an error (mysqld ignores both), because
// such text is a mistake.
func ParseSet(text string) (*Set, error) {
	s := &Set{}
	for element := range strings.SplitSeq(text, ",") {
		element = strings.Trim(element, whiteSpace)
		if element == "" {
			continue
		}
		if err := s.parseElement(element); err != nil {
			return nil, fmt.Errorf("parse GTID set: %w", err)
		}
	}
	s.normalize()
	return s, nil
}

// parseElement collects one element, the text between two commas.
func (s *Set) parseElement(element string) error {
	head, rest, _ := strings.Cut(element, ":")
	u, err := ParseUUID(strings.Trim(head, whiteSpace))
	if err != nil {
		return err
	}
	var tag Tag
	needInterval := true
	for part := range strings.SplitSeq(rest, ":") {
		part = strings.Trim(part, whiteSpace)
		if part == "" {
			return fmt.Errorf("empty part in %.128q: %w", element, ErrSyntax)
		}
		if part[0] < '0' || part[0] > '9' {
			if needInterval && tag != "" {
				return fmt.Errorf("tag %s without an interval: %w", tag, ErrSyntax)
			}
			if tag, err = ParseTag(part); err != nil {
				return err
			}
			needInterval = true
			continue
		}
		if err := s.parseInterval(u, tag, part); err != nil {
			return err
		}
		needInterval = false
	}
	if needInterval {
		return fmt.Errorf("no interval at the end of %.128q: %w", element, ErrSyntax)
	}
	return nil
}

func (s *Set) parseInterval(u UUID, tag Tag, text string) error {
	first, second, isRange := strings.Cut(text, "-")
	start, err := parseN(first)
	if err != nil {
		return err
	}
	end := start
	if isRange {
		if end, err = parseN(second); err != nil {
			return err
		}
	}
	return s.collect(Source{u, tag}, start, end)
}
