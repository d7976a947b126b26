package transport

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestGreetingsOfVersion2: the greetings of an agent of protocol version 2 on a connection of
// each class, and its answers, are the same to the byte. The files are never made again: later
// versions must write and read them.
func TestGreetingsOfVersion2(t *testing.T) {
	expect := func(name string, got []byte) {
		t.Helper()
		want, err := os.ReadFile(filepath.Join("testdata", "v2", name+".golden"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: % x\nwant % x", name, got, want)
		}
	}
	for _, c := range []class{classControl, classAppend, classRoute, classBulk, classCall} {
		h := helloFrom(nodeB, nodeA, c)
		h.speaks = versions{versionFirst, versionCall}.from(c)
		b := encodeHello(h)
		expect("hello-"+c.String(), b)
		g, err := readGreeting(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseHello(g, versionCall); err != nil || got != h {
			t.Errorf("%v: read %+v, %v", c, got, err)
		}
	}
	expect("accepted", appendGreeting(nil, greeting{
		version: versionCall, most: uint8(versionCall), word: uint8(codeAccepted), body: appendIdentity(nil, identity(nodeA)),
	}))
}
