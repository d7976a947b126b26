package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Problem is one thing wrong with a configuration, in one line.
type Problem struct {
	// File is the file's path as it was given; "" without a file.
	File string
	// Line is the line in the file, from 1; 0 = not at any line.
	Line int
	// Text says what is wrong and what to do.
	Text string

	// key is the path of the key that the problem is about. unknown says that there is no such key.
	key     string
	unknown bool
}

// Error returns "config FILE:LINE: TEXT", with as much of the place as is known.
func (p *Problem) Error() string {
	switch {
	case p.File == "":
		return "config: " + p.Text
	case p.Line == 0:
		return fmt.Sprintf("config %s: %s", p.File, p.Text)
	}
	return fmt.Sprintf("config %s:%d: %s", p.File, p.Line, p.Text)
}

// Problems returns what Load or Validate joined, one by one.
func Problems(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// source remembers where the keys of a file are.
type source struct {
	file string
	// lines maps a key's full path ("raft.heartbeat", "member[1].name",
	// "member[1]") to its line.
	lines map[string]int
	// texts maps the full path of each key with one value to the text of that value.
	texts map[string]string
}

// line returns the line of a key, or of the closest table around it that is
// written in the file, or 0.
func (s *source) line(key string) int {
	for key != "" {
		if n, ok := s.lines[key]; ok {
			return n
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return 0
}

// problemList collects problems about one file. A nil source is a Config that
// was not read from a file.
type problemList struct {
	source *source
	list   []*Problem
}

// add notes a problem with the value at key.
func (l *problemList) add(key, format string, args ...any) {
	p := &Problem{Text: fmt.Sprintf(format, args...), key: key}
	if l.source != nil {
		p.File, p.Line = l.source.file, l.source.line(key)
	}
	l.list = append(l.list, p)
}

// File is the file from which the configuration was read; "" = none.
func (c Config) File() string {
	if c.source == nil {
		return ""
	}
	return c.source.file
}

// Wrong joins problems that another package has found: why maps a key's path, such as
// mysql.variables.NAME, to a text.
func (c Config) Wrong(why map[string]string) error {
	l := &problemList{source: c.source}
	for _, key := range slices.Sorted(maps.Keys(why)) {
		l.add(key, "%s", why[key])
	}
	return l.err()
}

// err joins the problems in the order of their lines; nil if there are none.
func (l *problemList) err() error {
	slices.SortStableFunc(l.list, func(a, b *Problem) int { return a.Line - b.Line })
	errs := make([]error, 0, len(l.list))
	for _, p := range l.list {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}
