package notify

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestNew(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		want Manager
	}{
		{"none", map[string]string{"WATCHDOG_USEC": "1000000"}, Manager{}},
		{"no watchdog", map[string]string{"NOTIFY_SOCKET": "/s"}, Manager{socket: "/s"}},
		{"watchdog", map[string]string{"NOTIFY_SOCKET": "@s", "WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "7"}, Manager{"@s", 2500 * time.Millisecond}},
		{"for any process", map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "1000000"}, Manager{"/s", time.Second}},
		{"another process's", map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "8"}, Manager{socket: "/s"}},
		{"nonsense", map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "soon"}, Manager{socket: "/s"}},
		{"negative", map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "-1"}, Manager{socket: "/s"}},
	} {
		if got := New(func(name string) string { return c.env[name] }, 7); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestSend(t *testing.T) {
	if err := (Manager{}).Send(Ready); err != nil {
		t.Errorf("without a manager: %v", err)
	}
	path := filepath.Join(t.TempDir(), "s")
	if err := (Manager{socket: path}).Send(Ready); err == nil {
		t.Error("nobody listens, and that is no error")
	}
	l, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := (Manager{socket: path}).Send(Ready, Status("a\nb")); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	n, _, err := l.ReadFrom(buffer)
	if got, want := string(buffer[:n]), "READY=1\nSTATUS=a b"; got != want || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
