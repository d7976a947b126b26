package fault

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeDisk notes what is done to it.
type fakeDisk struct {
	node string
	did  *[]string
}

func (f fakeDisk) note(what string) error {
	*f.did = append(*f.did, what+" "+f.node)
	return nil
}

func (f fakeDisk) Hold() error     { return f.note("hold") }
func (f fakeDisk) Refuse() error   { return f.note("refuse") }
func (f fakeDisk) Heal() error     { return f.note("heal") }
func (f fakeDisk) CutPower() error { return f.note("cut") }
func (f fakeDisk) Close() error    { return f.note("close") }

func fakeOpen(did *[]string, refused string) OpenDisk {
	return func(_ context.Context, source, at string) (Disk, error) {
		node := filepath.Base(filepath.Dir(at))
		if node == refused {
			return nil, errRefused
		}
		for _, dir := range []string{source, at} {
			if _, err := os.Stat(dir); err != nil {
				return nil, err
			}
		}
		f := fakeDisk{node, did}
		return f, f.note("open")
	}
}

func TestDisks(t *testing.T) {
	var did []string
	d, err := NewDisks(t.Context(), fakeOpen(&did, ""), t.TempDir(), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Disk("b")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.CutPower(), d.Mount(t.Context(), "b")); err != nil {
		t.Fatal(err)
	}
	want := []string{"open a", "open b", "cut b", "close b", "open b"}
	if diff := cmp.Diff(want, did); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
	if _, err := d.Disk("c"); err == nil || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("disk of c: %v", err)
	}
	if err := os.WriteFile(filepath.Join(d.At("a"), "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.SyncAll("a"); err != nil {
		t.Errorf("sync all: %v", err)
	}
	did = nil
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if len(did) != 2 {
		t.Errorf("closing did %q, want each once", did)
	}
}

func TestFailedDisksLeaveNone(t *testing.T) {
	var did []string
	if _, err := NewDisks(t.Context(), fakeOpen(&did, "b"), t.TempDir(), []string{"a", "b", "c"}); !errors.Is(err, errRefused) {
		t.Errorf("NewDisks: %v, want %v", err, errRefused)
	}
	if diff := cmp.Diff([]string{"open a", "close a"}, did); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
	if _, err := NewDisks(t.Context(), nil, t.TempDir(), nil); !errors.Is(err, ErrNoDisk) {
		t.Errorf("without a way to open: %v", err)
	}
}
