package router

import (
	"bytes"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/sys/strangers"
)

// TestRecord: the log has each client, its address, and the address at which mysqld saw it. A
// refused login is counted.
func TestRecord(t *testing.T) {
	var text bytes.Buffer
	r := New(Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	server, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	s := &session{client: server, server: server, Target: Target{Node: 7, Local: true}, began: time.Now(), bytesIn: 11, bytesOut: 12}
	r.record(s)
	for _, want := range []string{
		"level=INFO", "client=" + listener.Addr().String(), "node=7", "bytes_in=11", "bytes_out=12",
		"local_port=" + strconv.Itoa(server.LocalAddr().(*net.TCPAddr).Port),
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s is not in %s", want, text.String())
		}
	}
	s.denied = true
	r.record(s)
	if !strings.Contains(text.String(), "level=WARN msg=\"a client's login was refused\"") || r.Stats().Denied != 1 {
		t.Errorf("%d refused, %s", r.Stats().Denied, text.String())
	}
	s.denied = false
	record := func(text string) []byte { return append([]byte{recordApplication, 3, 3, 0, byte(len(text))}, text...) }
	s.login.sent(slices.Concat(sslRequest, record("who I am, and a password")))
	s.login.answered(record("no, and here is an error"))
	s.login.sent(record(strings.Repeat("a", alertBytes))) // it closes
	r.record(s)
	if !strings.Contains(text.String(), "level=WARN msg=\"a client's TLS session ended with the answer to its login\"") || r.Stats().Denied != 2 {
		t.Errorf("%d refused, %s", r.Stats().Denied, text.String())
	}
}

// TestRefusedLoginsHaveTheirOwnLines: the lines of an application that connects for each statement do
// not hide a client that guesses passwords, and the other way round.
func TestRefusedLoginsHaveTheirOwnLines(t *testing.T) {
	for _, deniedFirst := range []bool{false, true} {
		var text bytes.Buffer
		r := New(Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}, nil)
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		many, one := &session{client: client, server: server, denied: deniedFirst}, &session{client: client, server: server, denied: !deniedFirst}
		for range 10 * strangers.BurstMax {
			r.record(many)
		}
		before := strings.Count(text.String(), "\n")
		r.record(one)
		if before < strangers.BurstMax || before >= 10*strangers.BurstMax || strings.Count(text.String(), "\n") != before+1 {
			t.Errorf("%d lines, then: %s", before, text.String())
		}
	}
}

func TestIsDenied(t *testing.T) {
	refusal := []byte{9, 0, 0, 2, 0xff, 0x15, 0x04, '#', '2', '8', '0', '0', '0'}
	for what, c := range map[string]struct {
		chunk []byte
		want  bool
	}{
		"refused":              {refusal, true},
		"the greeting's place": {append([]byte{9, 0, 0, 0}, refusal[4:]...), false},
		"a statement's answer": {append([]byte{9, 0, 0, 1}, refusal[4:]...), false},
		"too many connections": {[]byte{9, 0, 0, 2, 0xff, 0x10, 0x04, '#'}, false},
		"OK":                   {[]byte{7, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0}, false},
		"cut":                  {refusal[:6], false},
	} {
		if got := isDenied(c.chunk); got != c.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}
