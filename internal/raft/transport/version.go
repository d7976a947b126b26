package transport

import "fmt"

// The protocol versions. Part of the format; docs/formats.md says what each of them
// has.
const (
	// versionFirst is the version of an agent that does not negotiate.
	versionFirst uint16 = 1
	// versionCall adds classCall.
	versionCall uint16 = 2
	// versionOrder adds rejections whose Order is apart from the sentence.
	versionOrder uint16 = 3
	// versionRead adds classRead.
	versionRead uint16 = 4

	versionNewest = versionRead
)

// versions are the protocol versions that one side speaks, from least to most.
type versions struct{ least, most uint16 }

// common returns the highest version that both sides speak; ok=false if there is none.
func (v versions) common(w versions) (version uint16, ok bool) {
	version = min(v.most, w.most)
	return version, version >= max(v.least, w.least)
}

func (v versions) has(version uint16) bool { return v.least <= version && version <= v.most }

// from returns the part of v that knows the class; it is empty if least is above most.
func (v versions) from(c class) versions { return versions{max(v.least, c.since()), v.most} }

// String names the versions in the words of a rejection.
func (v versions) String() string {
	if v.least == v.most {
		return fmt.Sprintf("protocol version %d", v.least)
	}
	return fmt.Sprintf("protocol versions %d to %d", v.least, v.most)
}

// since is the first version that knows the class.
func (c class) since() uint16 {
	switch c {
	case classCall:
		return versionCall
	case classRead:
		return versionRead
	}
	return versionFirst
}
