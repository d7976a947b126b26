package e2e

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestServiceManager: a node tells its service manager its state by systemd's protocol, from its
// start to its end.
func TestServiceManager(t *testing.T) {
	beside(t)
	dir, err := os.MkdirTemp("", "qe2e-") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	socket, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	var mu sync.Mutex
	var lines []string
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, _, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			mu.Lock()
			lines = append(lines, strings.Split(string(buffer[:n]), "\n")...)
			mu.Unlock()
		}
	}()
	f := newFixture(t, devcluster.Options{Nodes: 1, AgentEnv: []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=3000000"}})
	await := func(ctx context.Context, prefix string, times int) {
		t.Helper()
		if err := devcluster.Poll(ctx, "the manager is told "+prefix, func(context.Context) (bool, string, error) {
			mu.Lock()
			defer mu.Unlock()
			n := times
			for _, line := range lines {
				if strings.HasPrefix(line, prefix) {
					n--
				}
			}
			return n <= 0, strings.Join(lines, " | "), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	f.scenario(t, "Life", func(t *testing.T, ctx context.Context) {
		await(ctx, "READY=1", 1)
		await(ctx, "STATUS=primary", 1)
		await(ctx, "WATCHDOG=1", 3)
		if err := f.Terminate(ctx, 0); err != nil {
			t.Fatal(err)
		}
		await(ctx, "STOPPING=1", 1)
		mu.Lock()
		defer mu.Unlock()
		if lines[0] != "READY=1" || strings.Count(strings.Join(lines, "\n"), "STOPPING=1") != 1 {
			t.Errorf("it was told %q", lines)
		}
	})
}
