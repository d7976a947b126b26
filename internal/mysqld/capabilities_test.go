package mysqld

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWithoutAmbient starts a child on a thread with CAP_NET_ADMIN to inherit, as systemd's
// AmbientCapabilities gives it to the agent.
func TestWithoutAmbient(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can have the capability to begin with")
	}
	for _, dropped := range []bool{false, true} {
		said := make(chan string)
		go func() {
			runtime.LockOSThread() // the thread is given up, with what it has
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var have [2]unix.CapUserData
			err := unix.Capget(&header, &have[0])
			have[0].Inheritable |= 1 << unix.CAP_NET_ADMIN
			if err == nil {
				err = unix.Capset(&header, &have[0])
			}
			if err == nil {
				err = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_ADMIN, 0, 0)
			}
			if err != nil {
				said <- err.Error()
				return
			}
			if dropped {
				withoutAmbient()
			}
			out, err := exec.Command("grep", "CapAmb", "/proc/self/status").CombinedOutput()
			if err != nil {
				said <- err.Error()
				return
			}
			said <- strings.TrimPrefix(strings.TrimSpace(string(out)), "CapAmb:\t")
		}()
		want := "0000000000001000"
		if dropped {
			want = "0000000000000000"
		}
		if got := <-said; got != want {
			t.Errorf("dropped %t: the child has the ambient capabilities %s, want %s", dropped, got, want)
		}
	}
}
