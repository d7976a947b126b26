package units

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Line keeps a text in its row: it may quote a server's error message. What is not
// printable is left out, as it could change what a terminal shows of the rest.
func Line(text string) string {
	shown := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return -1
	}, text)
	return strings.Join(strings.Fields(shown), " ")
}

// TimeLayout is the form of a time in UTC, for time.Format and time.Parse.
const TimeLayout = "2006-01-02 15:04:05 UTC"

// Time shows a time to the second, in UTC.
func Time(t time.Time) string { return t.UTC().Format(TimeLayout) }

// day is a day of 24 hours.
const day = 24 * time.Hour

// Duration shows a duration exactly, without units that are 0: 2h, 30d, 1d12h, 1.6s.
func Duration(d time.Duration) string {
	if d == 0 || d == math.MinInt64 {
		return d.String()
	}
	text, sign := "", ""
	if d < 0 {
		d, sign = -d, "-"
	}
	if days := d / day; days > 0 {
		text, d = fmt.Sprintf("%dd", days), d%day
	}
	if d > 0 {
		// Go writes 2h0m0s and 1h0m5s.
		rest := regexp.MustCompile(`(^|[a-z])0m`).ReplaceAllString(d.String(), "$1")
		if strings.HasSuffix(rest, "h0s") || strings.HasSuffix(rest, "m0s") {
			rest = strings.TrimSuffix(rest, "0s")
		}
		text += rest
	}
	return sign + text
}

// ParseDuration reads a duration as Duration writes it, and every other one that
// time.ParseDuration reads: numbers with units, of which d is a day of 24 hours.
func ParseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 32)
	d := time.Duration(n) * day
	if err == nil && rest != "" {
		var more time.Duration
		more, err = time.ParseDuration(rest)
		d += more
	}
	if err != nil || n > uint64(math.MaxInt64/day) || d < 0 || rest != "" && (rest[0] == '-' || rest[0] == '+') {
		return 0, fmt.Errorf("%q is not a duration", text)
	}
	return d, nil
}

// sizeUnits are powers of 1024: mysqld's own M means 1024*1024, and two meanings of one
// letter are one too many.
var sizeUnits = [...]string{"B", "KiB", "MiB", "GiB", "TiB"}

// Size shows a size in bytes: exactly if it is a whole number of MiB, or small, else in
// two digits or more.
func Size(bytes int64) string {
	unit, i := int64(1), 0
	for bytes/unit >= 1024 && i < len(sizeUnits)-1 {
		unit, i = unit*1024, i+1
	}
	const mebi = 1 << 20
	switch value := float64(bytes) / float64(unit); {
	case bytes%unit == 0:
		return fmt.Sprintf("%d%s", bytes/unit, sizeUnits[i])
	case unit > mebi && bytes%(unit/1024) == 0:
		return fmt.Sprintf("%d%s", bytes/(unit/1024), sizeUnits[i-1])
	case value >= 10:
		return fmt.Sprintf("%.0f%s", value, sizeUnits[i])
	default:
		return fmt.Sprintf("%.1f%s", value, sizeUnits[i])
	}
}

// ParseSize reads a size as Size writes it: a number with the unit B, KiB, MiB, GiB or
// TiB; a number without a unit counts bytes.
func ParseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "KMGTiBbkmgt ")
	name := strings.TrimSpace(text[len(digits):])
	unit := int64(1)
	for i, u := range sizeUnits {
		if u == name || name == "" {
			break
		}
		if unit *= 1024; i == len(sizeUnits)-1 {
			unit = 0 // there is no such unit
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err == nil && unit > 0 && n >= 0 && n <= math.MaxInt64/unit {
		return n * unit, nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	if f *= float64(unit); err == nil && unit > 1 && regexp.MustCompile(`^\d+\.\d+$`).MatchString(digits) && f < math.MaxInt64 {
		return int64(f), nil
	}
	return 0, fmt.Errorf("%q is not a size: write a number with the unit B, KiB, MiB, GiB or TiB, such as \"128MiB\"", text)
}

// Count returns a number with its noun, in the form for one or for several.
func Count[N int | int64 | uint64](n N, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}
