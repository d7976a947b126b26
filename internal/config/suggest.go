package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unknown notes an unknown key, with what the operator may have meant. key is
// its path in the file, name the path as the schema writes it.
func (d *decoder) unknown(key, name string, isTable bool) {
	last := name[strings.LastIndexByte(name, '.')+1:]
	what := fmt.Sprintf("unknown key %q", last)
	if isTable {
		what = fmt.Sprintf("unknown table [%s]", name)
	}
	d.problems.add(key, "%s%s", what, d.hint(name, last, isTable))
	d.problems.list[len(d.problems.list)-1].unknown = true
}

// hint returns " (did you mean …?)" or "".
func (d *decoder) hint(name, last string, isTable bool) string {
	known := slices.Sorted(maps.Keys(d.fields))
	if strings.HasPrefix(name, "member.") {
		for key := range new(Member).fields() {
			known = append(known, "member."+key)
		}
	}
	if strings.HasPrefix(name, "reader.") {
		for key := range new(Reader).fields() {
			known = append(known, "reader."+key)
		}
	}
	if isTable {
		if t := Closest(name, tables(known)); t != "" {
			return fmt.Sprintf(" (did you mean [%s]?)", t)
		}
		return ""
	}
	parent := name[:len(name)-len(last)]
	var siblings, elsewhere []string
	for _, key := range known {
		table, found := strings.CutSuffix(key, "."+last)
		switch rest, ok := strings.CutPrefix(key, parent); {
		case key == last:
			return " (it belongs above the first [table])"
		case ok && !strings.Contains(rest, "."):
			siblings = append(siblings, rest)
		case found && table != "member" && table != "reader":
			elsewhere = append(elsewhere, "["+table+"]")
		}
	}
	if len(elsewhere) > 0 { // the right name, but below the wrong [table]
		return fmt.Sprintf(" (it belongs under %s)", strings.Join(elsewhere, " or "))
	}
	if s := Closest(last, siblings); s != "" {
		return fmt.Sprintf(" (did you mean %q?)", s)
	}
	return ""
}

func tables(known []string) []string {
	names := []string{"member", "reader", "mysql.variables"}
	for _, key := range known {
		if table, _, ok := strings.Cut(key, "."); ok && !slices.Contains(names, table) {
			names = append(names, table)
		}
	}
	return names
}

func hasPrefix(fields map[string]func(string) error, prefix string) bool {
	for key := range fields {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// Closest returns the candidate with the fewest edits from word, or "" if all
// are more than a third of the word away: such a guess would not help.
func Closest(word string, candidates []string) string {
	best, bestEdits := "", max(len(word)/3, 1)+1
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if n := edits(word, c); n < bestEdits {
			best, bestEdits = c, n
		}
	}
	return best
}

// edits returns the Levenshtein distance of two words: how many bytes must be
// added, removed or replaced to turn one into the other.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = min(diagonal, row[j], row[j+1]) + 1
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
