package agent

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
)

// TestLogIsOpenedAgain: a disk that fails for a moment makes no damaged log.
func TestLogIsOpenedAgain(t *testing.T) {
	for _, c := range []struct {
		name     string
		failures int  // of the disk; each spoils one attempt
		flipped  bool // a bit
		corrupt  bool
		took     time.Duration
	}{
		{"sound", 0, false, false, 0},
		{"twice", 2, false, false, 2 * openRetry},
		{"for good", 1000, false, true, (openAttempts - 1) * openRetry},
		{"wrong bytes", 0, true, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewMem()
				failures := 0
				o := seglog.Options{Dir: "log", Logger: slog.New(slog.DiscardHandler), FS: vfs.Wrap(mem, func(op vfs.Op, path string) error {
					if op != vfs.OpRead || !strings.HasPrefix(filepath.Base(path), "quorate.") || failures == 0 {
						return nil
					}
					failures--
					return syscall.EIO
				})}
				log, err := seglog.Open(o)
				if err != nil {
					t.Fatal(err)
				}
				for i := range uint64(3) {
					if err := log.Append([]seglog.Entry{{Index: i + 1, Term: 1}}, &seglog.HardState{Term: 1, Commit: i + 1}); err != nil {
						t.Fatal(err)
					}
				}
				if err := log.Close(); err != nil {
					t.Fatal(err)
				}
				if c.flipped {
					flip(t, mem)
				}
				failures = c.failures
				began := time.Now()
				log, err = openLog(t.Context(), o)
				if took := time.Since(began); errors.Is(err, seglog.ErrCorrupt) != c.corrupt || took != c.took {
					t.Fatalf("after %v, want %v: %v", took, c.took, err)
				}
				if c.corrupt {
					return
				}
				if log == nil || log.LastIndex() != 3 {
					t.Fatalf("%v: %v", log, err)
				}
				if err := log.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestReadingTheLogIsSaid: a start that reads its log for long says how far it is, and ends when it is told to.
func TestReadingTheLogIsSaid(t *testing.T) {
	cfg := loneConfig(t)
	synctest.Test(t, func(t *testing.T) {
		a := loneAgent(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		tell := a.readingLog(ctx)
		for _, c := range []struct {
			after time.Duration
			done  int64
			want  string
		}{
			{0, 0, ""},
			{readingSaid - 1, 1 << 30, ""},
			{1, 2 << 30, "reading its log: 2GiB of 16GiB"},
			{readingSaid / 2, 3 << 30, "reading its log: 2GiB of 16GiB"},
			{readingSaid / 2, 5 << 30, "reading its log: 5GiB of 16GiB"},
		} {
			time.Sleep(c.after)
			if err := tell(c.done, 16<<30); err != nil {
				t.Fatal(err)
			}
			if own := a.board.Own(); own.Reason != c.want {
				t.Errorf("at %d: %q, want %q", c.done, own.Reason, c.want)
			}
		}
		if text := a.serviceText(); !strings.Contains(text, "reading its log: 5GiB of 16GiB") {
			t.Errorf("the service manager is told %q", text)
		}
		cancel()
		if err := tell(6<<30, 16<<30); !errors.Is(err, context.Canceled) {
			t.Errorf("%v after the end", err)
		}
	})
}

// TestStopWhileTheLogIsRead: a start that is told to stop does not read the rest of its log.
func TestStopWhileTheLogIsRead(t *testing.T) {
	a := openLone(t)
	open := a.log
	defer func() { a.log = open }()
	if err := a.log.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.openSoundLog(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

// flip changes a byte in the first segment.
func flip(t *testing.T, mem *vfs.Mem) {
	t.Helper()
	names, err := mem.List("log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "quorate.") {
			continue
		}
		f, err := mem.OpenReadWrite("log/" + name)
		if err == nil {
			_, err = f.WriteAt([]byte{0xff}, 1)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}
