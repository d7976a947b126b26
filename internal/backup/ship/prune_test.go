package ship

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
)

// TestPruneByTheLog: the names' times do not say which backups are the newest: not those of a clock that was ahead, and not
// those that somebody put there. Backups of another history, and those behind all of the log, push none out.
func TestPruneByTheLog(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	backUp(t, c, n, 3)
	contents, err := list(t.Context(), c.Store)
	if err != nil {
		t.Fatal(err)
	}
	first := archive.FullName(time.Now().AddDate(5, 0, 0), "b")
	rename(t, c.Store, contents.Fulls[0], first)
	forge := func(cluster string) string {
		name := archive.FullName(time.Now().AddDate(70, 0, 0), "x")
		for object, text := range map[string]string{
			archive.DataName(name):     "x",
			archive.ManifestName(name): fmt.Sprintf(`{"format": 1, "cluster_id": %q, "begin": {"first": 999}, "end": {"index": 998}, "data": "x"}`, cluster),
		} {
			if err := c.Store.Put(t.Context(), object, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
				t.Fatal(err)
			}
		}
		return name
	}
	other := forge("another")
	if names, _, err := Prune(t.Context(), c.Store, 2, false); err == nil || len(names) > 0 || !strings.Contains(err.Error(), "another") {
		t.Errorf("with a backup of another cluster: deleted %v, %v", names, err)
	}
	for _, object := range []string{archive.ManifestName(other), archive.DataName(other)} {
		if err := c.Store.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	forge(n.cluster)
	names, apart, err := Prune(t.Context(), c.Store, 2, false)
	if err != nil || len(apart) != 1 || !strings.Contains(apart[0], "entry 998") || !slices.Contains(names, archive.ManifestName(first)) {
		t.Errorf("deleted %v, apart %v, %v", names, apart, err)
	}
	after, err := list(t.Context(), c.Store)
	if err != nil || len(after.Fulls) != 3 || !slices.Contains(after.Fulls, contents.Fulls[1]) || !slices.Contains(after.Fulls, contents.Fulls[2]) {
		t.Errorf("left: %v, %v; of %v", after.Fulls, err, contents.Fulls)
	}
}

// TestPruneGoesOn: objects that cannot be deleted, however many, keep no others, but for what the next prune needs to finish the work:
// the manifests of data, and for a piece the last manifest.
func TestPruneGoesOn(t *testing.T) {
	c, n := newConfig(t), newNode(5)
	backUp(t, c, n, 14)
	want, _, err := Prune(t.Context(), c.Store, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	first := func(suffix string, count int) (names []string) {
		for _, name := range want {
			if strings.HasSuffix(name, suffix) && len(names) < count {
				names = append(names, name)
			}
		}
		return names
	}
	data, manifests := first(".data", 12), first(".json", 13)
	prune := func(refused, stays, rest []string) {
		t.Helper()
		gone, _, err := Prune(t.Context(), &refusing{Store: c.Store, refused: refused}, 1, false)
		objects := slices.DeleteFunc(slices.Clone(rest), func(name string) bool { return slices.Contains(stays, name) })
		if d := cmp.Diff(objects, gone); d != "" || !errors.Is(err, errDenied) || !strings.Contains(err.Error(), refused[0]) {
			t.Errorf("%v (-want +gone):\n%s", err, d)
		}
		if len(refused) > pruneErrorsMax && !strings.Contains(err.Error(), "3 more could not") {
			t.Error(err)
		}
	}
	piece := first(".qlog", 1)
	stays := slices.Concat(data, manifests[:12], piece)
	prune(append(slices.Clone(data), piece...), append(stays, manifests[12]), want)
	prune(piece, append(slices.Clone(piece), manifests[12]), append(stays, manifests[12]))
	if _, _, err := Prune(t.Context(), c.Store, 1, false); err != nil {
		t.Error(err)
	}
	if contents, err := list(t.Context(), c.Store); err != nil || len(contents.Fulls) != 1 || len(contents.Data) != 1 {
		t.Errorf("left: %+v, %v", contents, err)
	}
}

// TestPruneEnds: a store that does not answer is not asked for each object. A store that needs a minute for each ends a prune, too,
// as a full backup is taken after it; and an object whose deletion hangs holds up neither.
func TestPruneEnds(t *testing.T) {
	names := make([]string, 40)
	for i := range names {
		names[i] = fmt.Sprint("log-", i)
	}
	for takes, want := range map[time.Duration]int{time.Second: 40, time.Minute: 11, time.Hour: 1} {
		synctest.Test(t, func(t *testing.T) {
			store := &refusing{refused: names, takes: takes}
			if gone, err := deleteAll(t.Context(), store, names); len(gone) > 0 || !errors.Is(err, errDenied) || store.asked != want {
				t.Errorf("each takes %v: asked for %d objects, not %d; deleted %v, %v", takes, store.asked, want, gone, err)
			} else if left := fmt.Sprintf("%d more were not tried", 40-want); want < 40 && !strings.Contains(err.Error(), left) {
				t.Errorf("each takes %v: %v", takes, err)
			}
		})
	}
	c, n := newConfig(t), newNode(5)
	backUp(t, c, n, 7)
	if gone, _, err := Prune(t.Context(), noParts{c.Store}, 1, false); len(gone) > 0 || !errors.Is(err, errDenied) {
		t.Errorf("nothing was deleted, and %v is said to be gone: %v", gone, err)
	}
	synctest.Test(t, func(t *testing.T) {
		began, store := time.Now(), &refusing{Store: c.Store, takes: 50 * time.Minute}
		gone, _, err := Prune(t.Context(), store, 1, false)
		if took := time.Since(began); len(gone) != 5 || took > pruneTime+store.takes || !errors.Is(err, errPruneTime) || !strings.Contains(err.Error(), "more were not tried") {
			t.Errorf("deleted %v, in %v: %v", gone, took, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		began, store := time.Now(), hanging{}
		gone, err := deleteAll(t.Context(), store, names)
		if took := time.Since(began); len(gone) > 0 || took > 2*prunePatience || !errors.Is(err, errDeleteTime) {
			t.Errorf("deleted %v, in %v: %v", gone, took, err)
		}
	})
}

// hanging is a store whose deletions end with their context.
type hanging struct{ repository.Store }

// Delete implements repository.Store.
func (hanging) Delete(ctx context.Context, _ string) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// refusing is a store that does not delete some objects.
type refusing struct {
	repository.Store
	refused []string
	takes   time.Duration
	asked   int
}

// Delete implements repository.Store.
func (r *refusing) Delete(ctx context.Context, name string) error {
	r.asked++
	time.Sleep(r.takes)
	if slices.Contains(r.refused, name) {
		return errDenied
	}
	return r.Store.Delete(ctx, name)
}

// noParts is a store whose unfinished objects cannot be listed.
type noParts struct{ repository.Store }

func (noParts) Parts(context.Context, bool) ([]repository.Part, error) { return nil, errDenied }
