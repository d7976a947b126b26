package config

import "github.com/quorate/quorate/internal/config/units"

// Bytes is a size in bytes.
type Bytes int64

// The units of a size. Powers of 1000 are not offered: mysqld's own "M" means
// 1024*1024, and two meanings of one letter is one too many.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// ParseBytes reads a size such as "128MiB"; a number without a unit counts bytes.
func ParseBytes(text string) (Bytes, error) {
	n, err := units.ParseSize(text)
	return Bytes(n), err
}

// String returns the size as messages show it.
func (b Bytes) String() string { return units.Size(int64(b)) }
