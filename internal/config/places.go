package config

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// brokenLinesMax bounds how many broken lines (no TOML) are skipped.
const brokenLinesMax = 20

// LoadPlaces reads from the file at path where the node's agent is: data_dir, api.listen and
// control.socket. It checks only these, so that a cluster can be operated while
// somebody edits the rest. Other settings that could be read are in the Config, too.
func LoadPlaces(path string) (Config, error) {
	data, err := readFile(path)
	if err != nil {
		return Config{}, err
	}
	return parsePlaces(path, data)
}

func parsePlaces(file string, data []byte) (Config, error) {
	c, err := Parse(file, withoutBroken(data))
	l := &problemList{source: c.source}
	for _, err := range Problems(err) {
		p, ok := errors.AsType[*Problem](err)
		if !ok || p.key == "" { // no TOML
			return Config{}, err
		}
		if p.ofPlace() {
			l.list = append(l.list, p)
		}
	}
	c.validateDataDir(l)
	checkAddress(l, "api.listen", "api.listen", c.API.Listen)
	c.validateControl(l)
	return c, l.err()
}

// ofPlace tells whether a problem is about where the agent is. An unknown key may be a misspelt one of
// these: with the default instead, a command would ask another agent.
func (p *Problem) ofPlace() bool {
	table, last, nested := strings.Cut(p.key, ".")
	switch {
	case slices.Contains([]string{"data_dir", "api", "api.listen", "control", "control.socket"}, p.key):
		return true
	case !p.unknown:
		return false
	case nested:
		return table == "api" || table == "control" || slices.Contains([]string{"data_dir", "listen", "socket"}, last)
	}
	return Closest(p.key, []string{"data_dir", "api", "control", "listen", "socket"}) != ""
}

// withoutBroken empties lines that are no TOML. If a header is broken, it empties the whole
// table, which would else be read as part of the table before. It leaves broken lines that may say where
// the agent is, and errors whose line it cannot find: Parse reports these.
func withoutBroken(data []byte) []byte {
	place := regexp.MustCompile(`data_dir|listen|socket|api|control`)
	isHeader := func(line []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(line), []byte("[")) }
	lines := bytes.SplitAfter(data, []byte("\n"))
	for range brokenLinesMax {
		text := bytes.Join(lines, nil)
		e, ok := errors.AsType[*toml.DecodeError](toml.Unmarshal(text, new(map[string]any)))
		if !ok {
			return text
		}
		first, _ := e.Position()
		first--
		if first < 0 || first >= len(lines) {
			break
		}
		end := first + 1
		for isHeader(lines[first]) && end < len(lines) && !isHeader(lines[end]) {
			end++
		}
		broken := bytes.Join(lines[first:end], nil)
		if place.Match(broken) || len(bytes.TrimSpace(broken)) == 0 {
			break
		}
		for i := first; i < end; i++ {
			lines[i] = []byte("\n") // the others keep their numbers
		}
	}
	return data
}
