package mysqld

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
)

func TestParseLogLine(t *testing.T) {
	for _, tc := range []struct {
		line     string
		want     logLine
		shutdown bool
	}{
		{
			"2026-11-21T03:21:22.516144Z 0 [System] [MY-013172] [Server] Received SHUTDOWN from user <via user signal>. Shutting down mysqld (Version: 9.7.4-2).",
			logLine{"System", "MY-013172", "Received SHUTDOWN from user <via user signal>. Shutting down mysqld (Version: 9.7.4-2)."},
			true,
		},
		{
			"2026-11-21T03:21:22.516144Z 9 [System] [MY-999999] [Server] Received RESTART from user root.  Restarting mysqld (Version: 9.7.4-2).",
			logLine{"System", "MY-999999", "Received RESTART from user root.  Restarting mysqld (Version: 9.7.4-2)."},
			true,
		},
		{
			"2026-11-21T03:09:32.256951Z 0 [Warning] [MY-010068] [Server] CA certificate ca.pem is self signed.",
			logLine{"Warning", "MY-010068", "CA certificate ca.pem is self signed."},
			false,
		},
		{
			// Text that a client can bring into the log is not taken for a message of the
			// server.
			"2026-11-21T03:09:32.256951Z 8 [Note] [MY-010926] [Server] Access denied for user 'Received SHUTDOWN'@'localhost'",
			logLine{"Note", "MY-010926", "Access denied for user 'Received SHUTDOWN'@'localhost'"},
			false,
		},
		{"stack_bottom = 0 thread_stack 0x100000", logLine{text: "stack_bottom = 0 thread_stack 0x100000"}, false},
		{"Received SHUTDOWN", logLine{text: "Received SHUTDOWN"}, false},
	} {
		got := parseLogLine(tc.line)
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(logLine{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.line, diff)
		}
		if got.shutdown() != tc.shutdown {
			t.Errorf("%s: shutdown is %t", tc.line, got.shutdown())
		}
	}
}

func TestErrorLogIsBounded(t *testing.T) {
	var seen []string
	e := &errorLog{logger: slog.New(slog.DiscardHandler), shutdown: func(l string) { seen = append(seen, l) }}
	var in strings.Builder
	for i := range 100 {
		fmt.Fprintf(&in, "line %d %s\n", i, strings.Repeat("x", 3*lineBytesMax))
	}
	in.WriteString("t 0 [System] [MY-013172] [Server] Received SHUTDOWN without a line end")
	e.run(strings.NewReader(in.String()))
	if len(seen) != 1 || !strings.Contains(seen[0], "without a line end") {
		t.Errorf("shutdowns seen: %q", seen)
	}
	if got := len(e.last()); got > tailLines*(lineBytesMax+1) {
		t.Errorf("the tail has %d bytes", got)
	}
}

// TestErrorLogLeavesEqualLinesOut: a mysqld that repeats a line does not flood the agent's log, and each line still decides
// what it decides.
func TestErrorLogLeavesEqualLinesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		shutdowns := 0
		e := &errorLog{
			logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
					return slog.Attr{}
				}
				return a
			}})),
			shutdown: func(string) { shutdowns++ },
		}
		for second := range 3 {
			for i := range 1000 {
				e.line(fmt.Sprintf("2026-11-30T08:00:0%d.%06dZ 0 [ERROR] [MY-1] [InnoDB] no redo", second, i))
			}
			e.line(fmt.Sprintf("t%d 0 [System] [MY-013172] [Server] Received SHUTDOWN", second))
			time.Sleep(sameEvery)
		}
		for i := range 2 * sameMax {
			e.line(fmt.Sprintf("t 0 [Note] [MY-2] [Server] line %d", i)) // a Note is not in this log
		}
		if n := len(e.same); n > sameMax {
			t.Errorf("%d lines are known", n)
		}
		e.run(strings.NewReader("the last one\nthe last one"))
		const second = "msg=\"no redo\" code=MY-1\nmsg=\"Received SHUTDOWN\" code=MY-013172\nmsg=\"no redo\" code=MY-1 left_out=999\n"
		if d := cmp.Diff(strings.Repeat(second, 3)+"msg=\"the last one\" code=\"\"\nmsg=\"the last one\" code=\"\"\n", out.String()); d != "" {
			t.Errorf("the agent's log (-want +got):\n%s", d)
		}
		if shutdowns != 3 {
			t.Errorf("%d shutdowns were seen", shutdowns)
		}
	})
}

// TestComplaint: what mysqld does not start for, in few words, which are the same at each try.
func TestComplaint(t *testing.T) {
	const system = "2026-11-30T04:00:01.000001Z 0 [System] [MY-010116] [Server] mysqld (mysqld 8.4.6) starting as process 7\n"
	for text, want := range map[string]string{
		system +
			"2026-11-30T04:00:02.000001Z 1 [ERROR] [MY-012224] [InnoDB] Data file './ibdata1' uses page size 16384\n" +
			"2026-11-30T04:00:03.000001Z 1 [ERROR] [MY-012930] [InnoDB] Plugin initialization aborted\n" +
			strings.Repeat("a stack\n", 2*tailLines): "Data file './ibdata1' uses page size 16384",
		system:                  "mysqld (mysqld 8.4.6) starting as process 7",
		system + "it ends here": "it ends here",
		"":                      "it wrote nothing",
	} {
		if got := complaintOf([]byte(text), slog.New(slog.DiscardHandler)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestDamagedSecrets: it says what to do, and none of what is there.
func TestDamagedSecrets(t *testing.T) {
	for _, text := range []string{"{not toml", `admin = "short"`, strings.Repeat("x", secretsBytesMax+1)} {
		path := filepath.Join(t.TempDir(), "secrets.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadSecrets(path); !errors.Is(err, ErrSecrets) || !strings.HasSuffix(err.Error(), secretsRemedy) || strings.Contains(err.Error(), "short") {
			t.Errorf("%.20s: %v", text, err)
		}
	}
}

func TestSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secrets.toml")
	if _, err := LoadSecrets(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("load of a missing file: %v", err)
	}
	made, err := GenerateSecrets(vfs.OS{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := made.validate(); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadSecrets(path)
	if err != nil || loaded != made {
		t.Fatalf("loaded other secrets than were made: %v", err)
	}
	if made.Admin == made.Tap || made.DBA == made.Tap {
		t.Fatal("passwords repeat")
	}
	if _, err := GenerateSecrets(vfs.OS{}, path); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("second generate: %v, want ErrExist", err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", made, made, made, slog.AnyValue(made).Resolve()); strings.Contains(text, made.Admin[4:]) {
		t.Fatalf("secrets print their passwords: %s", text)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadSecrets(path); !errors.Is(err, ErrSecrets) {
		t.Fatalf("load of a file that others may read: %v", err)
	}
	for _, text := range []string{"", "admin = 1", "admin = 'x'", "not toml"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadSecrets(path); !errors.Is(err, ErrSecrets) {
			t.Errorf("load of %q: %v, want ErrSecrets", text, err)
		}
	}
}

// TestIncarnationNeverRepeats: neither a lost counter nor directories that were
// not removed bring an old number back; a damaged counter stops the start.
func TestIncarnationNeverRepeats(t *testing.T) {
	s := New(Config{DataDir: t.TempDir()})
	if err := s.makeDirs(osIdentity{uid: os.Geteuid(), gid: os.Getegid()}); err != nil {
		t.Fatal(err)
	}
	next := func(want uint64) {
		t.Helper()
		if n, err := s.nextIncarnation(); err != nil || n != want {
			t.Fatalf("incarnation %d, %v; want %d", n, err, want)
		}
	}
	next(1)
	next(2)
	if err := os.Mkdir(s.paths.binlogDir(2), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.paths.counter); err != nil {
		t.Fatal(err)
	}
	next(3)
	for _, name := range []string{"9223372036854775807", "18446744073709551615", "0000005000", "100", "00000000007"} { // CLONE LOCAL would make it
		if err := os.Mkdir(filepath.Join(s.paths.binlogs, name), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	next(4)
	if err := os.Mkdir(s.paths.binlogDir(900), 0o750); err != nil {
		t.Fatal(err)
	}
	next(901)
	if err := os.WriteFile(s.paths.counter, []byte("18446744073709551615"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := s.nextIncarnation(); err == nil {
		t.Fatalf("incarnation %d after the last number", n)
	}
	if err := os.WriteFile(s.paths.counter, []byte("3x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := s.nextIncarnation(); err == nil {
		t.Fatalf("incarnation %d from a damaged counter", n)
	}
	if err := s.removeOldBinlogs(3); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.paths.binlogs); err != nil || len(left) != 0 {
		t.Fatalf("old binlog directories left: %v, %v", left, err)
	}
}

func TestChildEnv(t *testing.T) {
	got := childEnv([]string{"PATH=/bin", "MYSQL_HOME=/x", "MYSQLD_PARENT_PID=1", "NOTIFY_SOCKET=/run/n", "LISTEN_FDS=1", "UMASK=0", "TZ=UTC"})
	want := []string{"PATH=/bin", "TZ=UTC", fmt.Sprintf("MYSQLD_PARENT_PID=%d", os.Getpid())}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestNewUUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if a, b := NewUUID(), NewUUID(); !form.MatchString(a) || a == b {
		t.Errorf("UUIDs %s, %s", a, b)
	}
}

func TestBinlogFiles(t *testing.T) {
	dir := t.TempDir()
	s := New(Config{DataDir: dir})
	if files, err := s.BinlogFiles(); err == nil {
		t.Errorf("without a directory: %v", files)
	}
	want := []string{
		"binlog/0000000009/q0000000009.000001", "binlog/0000000010/q0000000010.999999", "binlog/0000000010/q0000000010.1000000",
	}
	others := []string{"binlog/0000000009/q0000000009.index", "binlog/0000000009/q0000000010.000001", "binlog/saved/q0000000009.000001"}
	for _, name := range append(others, want...) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range want {
		want[i] = filepath.Join(dir, want[i])
	}
	files, err := s.BinlogFiles()
	if diff := cmp.Diff(want, files); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
