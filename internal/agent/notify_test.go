package agent

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/notify"
)

// TestNotify: the service manager is told of this node's role, that it lives while its loops turn, and that it ends
// if the program ends. The next life of a node is no end.
func TestNotify(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	read := func(wait time.Duration) string {
		buffer := make([]byte, 1000)
		if err := l.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		n, _, _ := l.ReadFrom(buffer)
		return string(buffer[:n])
	}
	want := func(text string) {
		t.Helper()
		if got := read(10 * time.Second); got != text {
			t.Errorf("told %q, want %q", got, text)
		}
	}
	a := &Agent{cfg: testConfig(t, t.TempDir()), logger: slog.New(slog.DiscardHandler)}
	a.self = a.cfg.Self()
	openBoard(a)
	env := map[string]string{"NOTIFY_SOCKET": socket}
	manager := func() notify.Manager { return notify.New(func(name string) string { return env[name] }, 1) }
	process, stop := context.WithCancel(t.Context())
	end := a.notifying(process, manager())
	want("READY=1\nSTATUS=starting")
	a.board.SetRole(status.RoleReplica, "")
	want("STATUS=replica, the primary is not known")
	a.board.SetRole(status.RoleFenced, "fenced by ann@db1")
	want("STATUS=fenced: fenced by ann@db1")
	end()
	env["WATCHDOG_USEC"] = "30000"
	a.lastStep.Store(new(time.Now().Add(-stepsWithin)))
	end = a.notifying(process, manager())
	want("READY=1\nSTATUS=fenced: fenced by ann@db1") // and no STOPPING before it
	if got := read(100 * time.Millisecond); got != "" {
		t.Errorf("its loops stand, and it says %q", got)
	}
	a.lastStep.Store(new(time.Now()))
	want("WATCHDOG=1")
	want("WATCHDOG=1")
	stop()
	end()
	for said := read(time.Second); said != "STOPPING=1"; said = read(time.Second) {
		if said != "WATCHDOG=1" {
			t.Fatalf("at the end it said %q", said)
		}
	}
	a.notifying(t.Context(), notify.New(func(string) string { return "" }, 1))()
}

// TestStepsAreMonotonic: the age of the newest step does not depend on the wall clock, which may be set
// while an agent runs. Go writes the monotonic clock's reading behind a time that has one.
func TestStepsAreMonotonic(t *testing.T) {
	a := openLone(t)
	m := role.New(role.Config{Self: a.self.ID, Kind: cluster.KindFull})
	a.stepped(m, role.Fenced{}, m.Phase(), nil)
	if last := a.lastStep.Load(); last == nil || !strings.Contains(last.String(), " m=") {
		t.Errorf("the newest step is kept as %v", last)
	}
}
