package install

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
)

// Version is a MySQL server version.
type Version struct {
	Major, Minor, Patch int
}

// VersionMin is the oldest server that quorate runs: before 8.0.30 an XA PREPARE without an ACK
// survives a crash.
func VersionMin() Version { return Version{8, 0, 30} }

// String returns the version as the server prints it, without suffixes.
func (v Version) String() string {
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
}

// Compare returns -1, 0 or +1 as v is older than, equal to or newer than w.
func (v Version) Compare(w Version) int {
	return cmp.Or(
		cmp.Compare(v.Major, w.Major),
		cmp.Compare(v.Minor, w.Minor),
		cmp.Compare(v.Patch, w.Patch),
	)
}

// AtLeast reports whether v is major.minor.patch or newer.
func (v Version) AtLeast(major, minor, patch int) bool {
	return v.Compare(Version{major, minor, patch}) >= 0
}

// ParseVersion reads the version at the start of s, such as the 8.4.3 of
// "8.4.3-debug" (@@version, or what follows "Ver" in `mysqld --version`).
func ParseVersion(s string) (Version, error) {
	m := regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})\.(\d{1,4})`).FindStringSubmatch(s)
	if m == nil {
		return Version{}, fmt.Errorf("read MySQL version: %q does not start with a.b.c", s)
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // At most four digits: cannot fail.
	}
	return Version{n[0], n[1], n[2]}, nil
}
