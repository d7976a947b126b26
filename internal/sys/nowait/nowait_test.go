package nowait

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"testing"
)

func connect(t *testing.T) (here, there net.Conn) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if here, err = net.Dial("unix", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return here, there
}

// TestWriteTakesWhatFits: a small text is written whole, and in order. Of a text that is larger than
// the kernel takes the beginning is written, and then nothing. To a broken connection nothing is written.
func TestWriteTakesWhatFits(t *testing.T) {
	here, there := connect(t)
	raw := Raw(here)
	if n := Write(raw, []byte("one ")); n != 4 {
		t.Fatalf("wrote %d of 4 bytes", n)
	}
	if n := Write(raw, []byte("two "), nil, []byte("three")); n != 9 {
		t.Fatalf("wrote %d of 9 bytes", n)
	}
	got := make([]byte, 13)
	if _, err := io.ReadFull(there, got); err != nil || string(got) != "one two three" {
		t.Fatalf("read %q, %v", got, err)
	}

	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	n := Write(raw, sent)
	if n == 0 || n >= len(sent) {
		t.Fatalf("nobody reads, and %d of %d bytes were written", n, len(sent))
	}
	for more := 1; more > 0; n += more {
		more = Write(raw, sent[n:])
	}
	got = make([]byte, n)
	if _, err := io.ReadFull(there, got); err != nil || !bytes.Equal(got, sent[:n]) {
		t.Fatalf("what was read is not what was written: %v", err)
	}

	_ = there.Close()
	if n := Write(raw, []byte("x")); n != 0 {
		t.Errorf("wrote %d bytes to nobody", n)
	}
	_ = here.Close()
	if n := Write(raw, []byte("x")); n != 0 {
		t.Errorf("wrote %d bytes to a closed connection", n)
	}
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	if n := Write(Raw(a), []byte("x")); n != 0 {
		t.Errorf("wrote %d bytes to a connection without a socket", n)
	}
}
