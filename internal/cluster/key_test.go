package cluster

import (
	"strings"
	"testing"
)

// TestKey: what names a key, and what does not.
func TestKey(t *testing.T) {
	good := KeyOf([]byte("a public key"))
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	if KeyOf([]byte("another")) == good {
		t.Error("two keys have one name")
	}
	text := string(good)
	last := "A"
	if strings.HasSuffix(text, last) {
		last = "E"
	}
	for _, bad := range []Key{"", "q1:", Key(text[3:]), "q2" + Key(text[2:]), Key(text + "A"), Key(text[:len(text)-1]), Key(text[:10] + "=" + text[11:]), Key(text[:len(text)-1] + "\n")} {
		if bad.Check() == nil {
			t.Errorf("%q names a key", bad)
		}
	}
}
