package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/front/control"
)

var errCopy = errors.New("the disk\nis gone")

// TestStream: a copy comes whole, or its reader gets the error.
func TestStream(t *testing.T) {
	long := strings.Repeat("0123456789", 100_000)
	socket := filepath.Join(socketDir(t), "s")
	entered := make(chan struct{}, copiesMax)
	startWith(t, Config{Socket: socket, Stream: func(ctx context.Context, r control.Request, w io.Writer) error {
		switch r.Name {
		case "refused":
			return control.Errorf(control.CodePurged, "it is gone")
		case "waits":
			if _, err := io.WriteString(w, "begun"); err != nil {
				return err
			}
			entered <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		_, err := io.WriteString(w, long)
		if r.Name == "broken" {
			err = errors.Join(err, errCopy)
		}
		return err
	}}, &fakeProvider{})
	get := func(name string) (string, error) {
		r, err := Stream(t.Context(), socket, control.Request{Name: name}, 0)
		if err != nil {
			return "", err
		}
		b, err := io.ReadAll(r)
		return string(b), errors.Join(err, r.Close())
	}
	if got, err := get("whole"); err != nil || got != long {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if got, err := get("broken"); got != long || err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("broken off: %d bytes, %v", len(got), err)
	}
	_, err := get("refused")
	if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodePurged || e.Text != "it is gone" {
		t.Errorf("refused: %v", err)
	}
	// When all places are taken, one more copy is refused; there are places again once readers have
	// left.
	ctx, cancel := context.WithCancel(t.Context())
	var open []io.ReadCloser
	for range copiesMax {
		r, err := Stream(ctx, socket, control.Request{Name: "waits"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, r)
		<-entered
	}
	_, err = get("whole")
	if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeBusy {
		t.Errorf("one too many: %v", err)
	}
	cancel()
	for _, r := range open {
		_ = r.Close() // its request has ended
	}
	for {
		if got, err := get("whole"); err == nil && got == long {
			break
		} else if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeBusy {
			t.Fatal(err)
		}
	}
}

// TestSecondBackupIsAnswered: beside an archive and a full backup there is room for another backup, so that it learns from the
// node, and not from the number of copies, that a backup runs.
func TestSecondBackupIsAnswered(t *testing.T) {
	socket := filepath.Join(socketDir(t), "s")
	startWith(t, Config{Socket: socket, Stream: func(ctx context.Context, r control.Request, w io.Writer) error {
		if r.Name == "second" {
			return control.Errorf(control.CodePurged, "a backup runs")
		}
		_, err := io.WriteString(w, "begun")
		<-ctx.Done()
		return err
	}}, &fakeProvider{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 + 3 { // what an archive and a full backup read at most
		r, err := Stream(ctx, socket, control.Request{Name: "first"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
	}
	_, err := Stream(ctx, socket, control.Request{Name: "second"}, 0)
	if e, ok := errors.AsType[*control.Error](err); !ok || e.Text != "a backup runs" {
		t.Error(err)
	}
}

// TestStreamIsCutOff: a copy whose agent dies, or is stopped, says so, and is not taken for a log or data that end too early.
func TestStreamIsCutOff(t *testing.T) {
	socket := filepath.Join(socketDir(t), "s")
	s := New(Config{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), Socket: socket, Stream: func(ctx context.Context, r control.Request, w io.Writer) error {
		if _, err := io.WriteString(w, "begun"); err != nil {
			return err
		}
		if r.Name == "dies" {
			panic(http.ErrAbortHandler) // the connection ends as if the process did
		}
		<-ctx.Done()
		return ctx.Err()
	}}, &fakeProvider{})
	if err := errors.Join(s.Listen(), s.ListenControl()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for _, name := range []string{"dies", "stops"} {
		r, err := Stream(t.Context(), socket, control.Request{Name: name}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, len("begun"))); err != nil {
			t.Fatal(err)
		}
		if name == "stops" {
			stop()
		}
		if _, err = io.ReadAll(r); err == nil || err.Error() != errCutOff.Error() || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestStreamStandsStill: a copy may stand still for as long as its client asks. Before, it was cut off after 10 min, whatever
// command_idle was.
func TestStreamStandsStill(t *testing.T) {
	socket := filepath.Join(socketDir(t), "s")
	wrote := make(chan error, 1)
	startWith(t, Config{Socket: socket, Stream: func(_ context.Context, _ control.Request, w io.Writer) (err error) {
		for n := 0; err == nil && n < 100; n++ {
			_, err = w.Write(make([]byte, 1<<20))
		}
		wrote <- err
		return err
	}}, &fakeProvider{})
	r, err := Stream(t.Context(), socket, control.Request{Name: "data"}, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	select { // nothing is read
	case err := <-wrote:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the agent: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the agent waits for its reader")
	}
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, errCutOff) || !strings.Contains(err.Error(), "read nothing of it for too long") {
		t.Error(err)
	}
}

// TestStreamEnds: the agent can end a copy that nobody reads, however long it may stand still. A client that reads learns why, also
// if it takes longer to end the copy than its writes may take.
func TestStreamEnds(t *testing.T) {
	socket := filepath.Join(socketDir(t), "s")
	wrote := make(chan error, 1)
	startWith(t, Config{Socket: socket, Stream: func(_ context.Context, r control.Request, w io.Writer) (err error) {
		ender := w.(interface{ EndIn(time.Duration) })
		if r.Name != "unread" {
			_, err = w.Write(make([]byte, 1<<10))
			if r.Name == "ended" {
				ender.EndIn(50 * time.Millisecond)
			}
			time.Sleep(500 * time.Millisecond)
			return errors.Join(err, errCopy)
		}
		time.AfterFunc(50*time.Millisecond, func() { ender.EndIn(50 * time.Millisecond) })
		for n := 0; err == nil && n < 100; n++ {
			_, err = w.Write(make([]byte, 1<<20))
		}
		_, again := w.Write(make([]byte, 1<<20))
		wrote <- errors.Join(err, again)
		return err
	}}, &fakeProvider{})
	for name, want := range map[string]string{"ended": "the disk is gone", "late": "the disk is gone", "unread": errCutOff.Error()} {
		stall := time.Duration(math.MaxInt64)
		if name == "late" {
			stall = 250 * time.Millisecond
		}
		r, err := Stream(t.Context(), socket, control.Request{Name: name}, stall)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if name == "unread" {
			select {
			case err := <-wrote:
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the agent: %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("the agent waits for its reader")
			}
		}
		if _, err := io.Copy(io.Discard, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
