package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// topStatus is a cluster whose primary has committed n transactions. Its replica b has applied half of them, and its
// replica c is unreachable.
func topStatus(n int) status.Cluster {
	executed := func(n int) string { return fmt.Sprintf("588d03dd-d479-40b0-b02d-efdf7e9bc2b8:1-%d", n) }
	node := status.Node{Kind: cluster.KindFull, Weight: 5, Reachable: true, LogState: status.LogOK, Mysqld: status.MysqldRunning, ServerVersion: "9.7.4", LogBytes: 5 << 20}
	a, b, c := node, node, node
	a.ID, a.Name, a.Role, a.LogLast, a.GTIDExecuted, a.WaitingSessions = 1, "a", status.RolePrimary, uint64(n), executed(n), 3
	b.ID, b.Name, b.Role, b.LogLast, b.GTIDExecuted, b.LagSeconds = 2, "b", status.RoleReplica, uint64(n), executed(n/2+1), 1.5
	c.ID, c.Name, c.Reachable, c.Role, c.LogLast, c.GTIDExecuted = 3, "c", false, status.RoleReplica, uint64(n), executed(n)
	return status.Cluster{Cluster: "shop", Self: "a", Primary: "a", Nodes: []status.Node{a, b, c}}
}

// TestTopView: rates are those between the oldest and the newest look. The age of a node's figures counts.
func TestTopView(t *testing.T) {
	began := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	old, now := topStatus(1000), topStatus(3000)
	old.Nodes[1].AgeMs = 1000 // b's figures are a second old
	rows := func(samples ...topSample) (rows []string) {
		for _, l := range topView(samples) {
			rows = append(rows, strings.Join(strings.Fields(l.text), " "))
		}
		return rows
	}
	got := rows(topSample{began, old}, topSample{began.Add(4 * time.Second), now})
	for _, want := range []string{
		"12:00:04 UTC", "NODE ROLE TPS WAITING LAG ENTRIES/S LOG MYSQLD",
		"a primary 500 3 - 500 5MiB running 9.7.4", "b replica 200 - 1.5s 400 5MiB running 9.7.4", "c unreachable - - unknown - 5MiB -",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
	now.Nodes[0].Commits = &status.Commits{PerSecond: 500, ReceiveSeconds: 0.0001, ProposeSeconds: 0.00002, FsyncSeconds: 0.0004, MajoritySeconds: 0.0003, ReleaseSeconds: 0.00008}
	if got := rows(topSample{began, now}); !slices.Contains(got, "commit 0.90 ms: tap 0.10, propose 0.02, fsync 0.40, majority 0.30, ACK 0.08") {
		t.Errorf("a commit's time:\n%s", strings.Join(got, "\n"))
	}
	// One look gives no rates. Nor do figures that have become smaller, as after a rebuild.
	if got := rows(topSample{began, now}); !slices.Contains(got, "a primary - 3 - - 5MiB running 9.7.4") {
		t.Errorf("one look:\n%s", strings.Join(got, "\n"))
	}
	if got := rows(topSample{began, now}, topSample{began.Add(time.Second), old}); !slices.Contains(got, "a primary - 3 - - 5MiB running 9.7.4") {
		t.Errorf("less than before:\n%s", strings.Join(got, "\n"))
	}
}

// TestTopText: lines are cut to the width of the terminal before they get a colour.
func TestTopText(t *testing.T) {
	lines := []topLine{{"ääää äääää  ", ansiRed}, {"", "1"}, {"short", ""}, {"more", ""}}
	if diff := cmp.Diff("\x1b[31määää …\x1b[0m\n\nshort\n", topText(lines, 6, 3, true)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff("ääää äääää\n\nshort\nmore\n", topText(lines, 0, 0, false)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTopOnce: top --once looks several times, so that there are rates, prints plain text, and has an exit code.
func TestTopOnce(t *testing.T) {
	looks := atomic.Int64{}
	primary := "a"
	addr := onSocket(t, func(w http.ResponseWriter, _ *http.Request) {
		st := topStatus(int(1000 + 100*looks.Add(1)))
		st.Primary = primary
		_ = json.NewEncoder(w).Encode(st)
	})
	once := func(addr string) (string, error) {
		var out strings.Builder
		view := &top{addr: addr, out: &out, every: time.Millisecond}
		err := view.once(t.Context())
		return out.String(), err
	}
	if out, err := once(addr); err != nil || strings.Contains(out, "\x1b") || !strings.Contains(out, "ENTRIES/S") || strings.Contains(out, "primary  - ") {
		t.Errorf("%v, %q", err, out)
	}
	primary = ""
	_, err := once(addr)
	if e, ok := errors.AsType[*exitError](err); !ok || e.code != exitNoPrimary {
		t.Errorf("no primary: %v", err)
	}
	if code, _, errs := run(t, "top", "--once", "--addr", "127.0.0.1:1"); code != exitFailure || !strings.Contains(errs, "connection refused") {
		t.Errorf("no agent: %d, %q", code, errs)
	}
}

// terminal opens a pseudo-terminal of 40 columns and 12 rows.
func terminal(t *testing.T) (ours, its *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		its, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(its.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 40, Row: 12})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = its.Close() })
	return ours, its
}

// TestTopOnATerminal: top uses the second screen, its frames fit, and it does not clear in between. After q the
// terminal is as before.
func TestTopOnATerminal(t *testing.T) {
	looks := atomic.Int64{}
	addr := onSocket(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(topStatus(int(1000 + 100*looks.Add(1))))
	})
	ours, its := terminal(t)
	before, err := unix.IoctlGetTermios(int(its.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	s := openScreen(its, its)
	if s == nil {
		t.Fatal("a terminal is not taken for one")
	}
	ended := make(chan error, 1)
	go func() {
		view := &top{addr: addr, out: its, every: 10 * time.Millisecond}
		err := view.draw(t.Context(), s)
		s.close()
		ended <- err
	}()
	said, buffer := "", make([]byte, 4096)
	for strings.Count(said, "\x1b[H") < 2 || !strings.Contains(said, "q quits") && !strings.HasSuffix(said, "\x1b[J") {
		n, err := ours.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		said += string(buffer[:n])
	}
	if _, err := ours.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(said, "\x1b[?1049h\x1b[?25l\x1b[H") || strings.Contains(said, "\x1b[2J") {
		t.Errorf("it began with %q", said[:min(len(said), 60)])
	}
	for _, line := range strings.Split(strings.Split(said, "\x1b[H")[1], "\r\n") {
		for _, code := range []string{"\x1b[K", "\x1b[J", "\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"} {
			line = strings.ReplaceAll(line, code, "")
		}
		if n := len([]rune(line)); n > 40 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	after, err := unix.IoctlGetTermios(int(its.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as before: %v", err)
	}
}

// TestTopQuitsWithoutAnAnswer: q ends top also while the agent does not answer. No key makes a signal, because
// Ctrl-Z would stop top and leave the terminal as it is.
func TestTopQuitsWithoutAnAnswer(t *testing.T) {
	asked := make(chan struct{}, 1)
	addr := onSocket(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	ours, its := terminal(t)
	s := openScreen(its, its)
	if s == nil {
		t.Fatal("a terminal is not taken for one")
	}
	defer s.close()
	mode, err := unix.IoctlGetTermios(s.fd, unix.TCGETS)
	if err != nil || mode.Lflag&unix.ISIG != 0 {
		t.Errorf("keys make signals: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- (&top{addr: addr, out: its, every: time.Hour}).draw(t.Context(), s) }()
	<-asked
	began := time.Now()
	if _, err := ours.WriteString("\x1aq"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > statusTimeout/2 {
		t.Errorf("it ended after %v", took)
	}
}
