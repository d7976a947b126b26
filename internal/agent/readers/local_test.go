package readers

import (
	"errors"
	"net"
	"path/filepath"
	"testing"
)

// TestLocal: a reader's connections to mysqld end with the role of the node. While the node has no role, no reader is
// let in.
func TestLocal(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	mysqld, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mysqld.Close() }()
	serves := true
	l := &Local{Serves: func() bool { return serves }, Socket: func() string { return socket }}
	one, err := l.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	two, err := l.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err != nil || len(l.conns) != 1 {
		t.Errorf("%v, %d are known", err, len(l.conns))
	}
	serves = false
	l.End()
	if _, err := two.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) || len(l.conns) != 0 {
		t.Errorf("%v, %d are known", err, len(l.conns))
	}
	if _, err := l.Dial(t.Context()); !errors.Is(err, ErrNoSQL) {
		t.Error(err)
	}
}
