package hostile

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/quorate/quorate/internal/raft/frame"
)

// TestSay: all that is sent arrives, and all that is told.
func TestSay(t *testing.T) {
	sent := bytes.Repeat([]byte("quorate"), 1<<17)
	told := Say(t, 64<<20, sent, func(conn *net.UnixConn) { _, _ = io.Copy(conn, conn); _ = conn.Close() })
	if !bytes.Equal(told, sent) {
		t.Errorf("%d of %d bytes came back", len(told), len(sent))
	}
	told = Say(t, 64<<20, sent, func(conn *net.UnixConn) { _, _ = conn.Write([]byte("no")); _ = conn.Close() })
	if string(told) != "no" {
		t.Errorf("told %q", told)
	}
}

// TestMend: whatever becomes of frames, a reader takes them.
func TestMend(t *testing.T) {
	f := frame.Format{Magic: 0x5451, Version: 1}
	whole := append(make([]byte, frame.HeaderBytes), "payload"...)
	f.Fill(whole, 7)
	broken := bytes.Repeat(whole, 3)
	broken[0], broken[8], broken[frame.HeaderBytes], broken[len(whole)+2] = 'x', 0, 'P', 9
	broken[2*len(whole)+4] = 200
	errCorrupt := errors.New("corrupt")
	r := frame.NewReader(bytes.NewReader(Mend(broken, f)), f, errCorrupt, func(uint8, uint32) ([]byte, error) { return nil, nil })
	for _, want := range []string{"Payload", "payload", "payload"} {
		if kind, payload, err := r.Next(); err != nil || kind != 7 || string(payload) != want {
			t.Errorf("type %d, %q, %v", kind, payload, err)
		}
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
