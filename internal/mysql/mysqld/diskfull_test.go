package mysqld

import (
	"log/slog"
	"strings"
	"testing"
)

// TestDiskFullIsSeen: the line of a server that waits for space is passed on, and the server's
// log goes on if nobody reads it.
func TestDiskFullIsSeen(t *testing.T) {
	p := &Process{server: &Server{paths: paths{tmp: "/m/tmp"}}, diskFull: make(chan string, 1)}
	e := &errorLog{logger: slog.New(slog.DiscardHandler), diskFull: p.noteDiskFull}
	const line = "2026-11-21T23:08:06.622Z 9 [ERROR] [MY-000035] [Server] Disk is full writing '/m/binlog/q.000001' (OS errno 28 - No space left on device). Waiting for someone to free space... Retry in 60 secs. Message reprinted in 600 secs.\n"
	e.run(strings.NewReader(strings.Replace(line, "/m/binlog/q.000001", "/m/tmp/MLfd=35", 1)))
	if n := len(p.DiskFull()); n != 0 {
		t.Fatal("a temporary file is taken for one that others wait for")
	}
	e.run(strings.NewReader("2026-11-21T23:08:06Z 9 [ERROR] [MY-000001] [Server] Disk is full\n" + strings.Repeat(line, 3)))
	select {
	case text := <-p.DiskFull():
		if !strings.HasPrefix(text, "Disk is full writing '/m/binlog/q.000001'") {
			t.Errorf("it says %q", text)
		}
	default:
		t.Error("the line was not seen")
	}
	if n := len(p.DiskFull()); n != 0 {
		t.Errorf("%d more lines wait", n)
	}
}
