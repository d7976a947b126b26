package mysqld

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
)

// TestFailedStartsLeaveOneBinlog: a mysqld that cannot start is tried every 5 s, and does not fill its disk with directories.
func TestFailedStartsLeaveOneBinlog(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	openAlone(t, p)
	mustExec(t, login(t, s, DBAUser, s.cfg.Secrets.DBA), "CREATE DATABASE app")
	p.Kill()
	start(t, s).Kill() // it has no transaction
	s.cfg.Variables["no_such_variable"] = "1"
	for range 3 {
		p, err := s.Start(ctx(t), StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		if err := p.Ready(ctx(t)); !errors.Is(err, ErrExited) {
			t.Fatalf("Ready: %v", err)
		}
	}
	left, err := s.fs.List(s.paths.binlogs)
	if d := cmp.Diff([]string{"0000000001", "0000000005"}, left); d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// TestUnusedBinlogs: a directory is removed only if it has certainly no transaction.
func TestUnusedBinlogs(t *testing.T) {
	w := binlogtest.New("q0000000001.000001")
	format, previous := w.FormatDescription(1), w.Event(binlog.TypePreviousGTIDs, make([]byte, 8))
	begin := binlogtest.Join([]byte(binlog.Magic), format, previous)
	transaction := binlogtest.Join(w.Statement("CREATE DATABASE app")...)
	file := func(events ...[]byte) string { return string(binlogtest.Join(events...)) }
	short := w.Event(binlog.TypeStop, nil)
	short[9], short[10] = 0, 0 // its length
	for name, tc := range map[string]struct {
		files []string // nil: the directory is empty
		used  bool
	}{
		"never begun":        {nil, false},
		"empty":              {[]string{""}, false},
		"no event":           {[]string{binlog.Magic}, false},
		"begun":              {[]string{file(begin)}, false},
		"ended":              {[]string{file(begin, w.Event(binlog.TypeStop, nil))}, false},
		"continued":          {[]string{file(begin, w.Rotate("q0000000001.000002")), file(begin)}, false},
		"half an event":      {[]string{file(begin, transaction[:binlog.HeaderBytes-1])}, false},
		"a transaction":      {[]string{file(begin, transaction)}, true},
		"half a transaction": {[]string{file(begin, transaction[:binlog.HeaderBytes])}, true},
		"in the second file": {[]string{file(begin), file(begin, transaction)}, true},
		"before an empty":    {[]string{file(begin, transaction), file(begin)}, true},
		"encrypted":          {[]string{"\xfdbin" + string(transaction)}, true},
		"half a magic":       {[]string{binlog.Magic[:2]}, true},
		"an unknown event":   {[]string{file(begin, w.Event(99, nil))}, true},
		"an incident":        {[]string{file(begin, w.Event(binlog.TypeIncident, nil))}, true},
		"no length":          {[]string{file(begin, short)}, true},
	} {
		s := New(Config{DataDir: t.TempDir()})
		dir := s.paths.binlogDir(1)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		names := map[int]string{0: "q0000000001.000001", 1: "q0000000001.000002"}
		for i, content := range tc.files {
			if err := os.WriteFile(filepath.Join(dir, names[i]), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.removeUnusedBinlogs(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); err == nil != tc.used {
			t.Errorf("%s: the directory is there: %v, want %v", name, err == nil, tc.used)
		}
	}
	s := New(Config{DataDir: t.TempDir()})
	for _, other := range []string{"saved", "7", "0000000009"} {
		if err := os.MkdirAll(filepath.Join(s.paths.binlogs, other), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(t.TempDir(), s.paths.binlogDir(8)); err != nil {
		t.Fatal(err)
	}
	if err := s.removeUnusedBinlogs(); err != nil {
		t.Fatal(err)
	}
	left, err := s.fs.List(s.paths.binlogs)
	if d := cmp.Diff([]string{"0000000008", "7", "saved"}, left); d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}
