package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

// Bytes is a size in bytes.
type Bytes int64

// The units of a size. Powers of 1000 are not offered: mysqld's own "M" means
// 1024*1024, and two meanings of one letter is one too many.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// ParseBytes reads a whole number with the unit B, KiB, MiB or GiB, such as
// "128MiB"; a number without a unit counts bytes.
func ParseBytes(text string) (Bytes, error) {
	digits := strings.TrimRight(text, "KMGTiBbkmgt ")
	unit, ok := byteUnit(strings.TrimSpace(text[len(digits):]))
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return 0, fmt.Errorf("%q is not a size: write a whole number with the unit B, KiB, MiB or GiB, such as \"128MiB\"", text)
	}
	return Bytes(n) * unit, nil
}

func byteUnit(name string) (Bytes, bool) {
	switch name {
	case "", "B":
		return 1, true
	case "KiB":
		return KiB, true
	case "MiB":
		return MiB, true
	case "GiB":
		return GiB, true
	}
	return 1, false
}

// String returns the size in the largest unit that keeps it whole. ParseBytes
// reads it back.
func (b Bytes) String() string { return cluster.SizeText(int64(b)) }
