package ship

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
)

// ErrBehind is returned if the log of a node does not reach as far as the repository: the node lags, or
// the repository has another history.
var ErrBehind = errors.New("the repository has more of the log than this node: the node lags, or the repository is of another history (of a cluster before it was restored, recovered or made again)")

// FullBackup describes a full backup, and what can be restored with it.
type FullBackup struct {
	Name  string    `json:"name"`
	Node  string    `json:"node"`
	At    time.Time `json:"at"`
	Bytes int64     `json:"bytes"`
	// From and To are the earliest and the latest point that can be restored, Index is the last
	// entry.
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Index uint64    `json:"index"`
	// Problem says why it cannot be used; "" = it can.
	Problem string `json:"problem,omitempty"`
}

// Fulls returns the full backups of a repository, oldest first, and behind them unfinished
// ones. It returns all that it knows together with an error if it could not read some manifest.
func Fulls(ctx context.Context, store repository.Store) ([]FullBackup, error) {
	contents, err := list(ctx, store)
	if err != nil {
		return nil, err
	}
	all := []FullBackup{}
	var unread error
	for _, name := range contents.Fulls {
		f := FullBackup{Name: name}
		m, err := readManifest(ctx, store, name)
		if err != nil {
			f.Problem = err.Error()
			all = append(all, f)
			if unread == nil && !errors.Is(err, archive.ErrManifest) {
				unread = fmt.Errorf("read the manifest of %s: %w", name, err)
			}
			continue
		}
		f.Node, f.At, f.Bytes, f.From = m.Node, m.At, m.Bytes, m.Time
		pieces, last := contents.Chain(m.Begin.First)
		f.Index = last
		if len(pieces) > 0 {
			f.To = pieces[len(pieces)-1].Time
		}
		switch newest := contents.Newest().Last; {
		case last < m.End.Index:
			f.Problem = fmt.Sprintf("the log from entry %d on is missing", last+1)
		case !contents.Data[name]:
			f.Problem = "its data are missing"
		case last < newest:
			f.Problem = fmt.Sprintf("the log has a gap from entry %d on, and goes to entry %d", last+1, newest)
		}
		if f.To.Before(f.From) && f.Problem == "" {
			f.To = f.From
		}
		all = append(all, f)
	}
	for _, name := range contents.Unfinished {
		all = append(all, FullBackup{Name: name, Problem: "it is being taken, or was interrupted"})
	}
	parts, err := store.Parts(ctx, false)
	for _, p := range parts {
		for _, name := range archive.Sort([]string{p.Object}).Unfinished {
			all = append(all, FullBackup{Name: name, Bytes: p.Bytes, Problem: partProblem[p.State]})
		}
	}
	return all, cmp.Or(err, unread)
}

// partProblem explains a part of a full backup's data.
var partProblem = map[repository.PartState]string{
	repository.PartWritten: "it is being taken",
	repository.PartLeft:    "it was interrupted, and what it has left takes this room until the next backup, or quorate backup prune",
	repository.PartUnknown: "it is being taken on another host, or as another account, or was interrupted there or before this host's last start: what it has left is removed after 48 hours",
}

// Usable returns the full backups that can be restored, oldest first. problems says for each of the others why
// it cannot.
func Usable(ctx context.Context, store repository.Store) (contents archive.Contents, all []archive.Manifest, problems []string, err error) {
	if contents, err = list(ctx, store); err != nil {
		return contents, nil, nil, err
	}
	for _, name := range contents.Fulls {
		m, problem := usable(ctx, store, contents, name)
		if problem != "" {
			problems = append(problems, name+": "+problem)
		} else {
			all = append(all, m)
		}
	}
	return contents, all, problems, nil
}

// Newest returns the newest full backup that can be restored; ok=false if there is none. It reads the manifest of an
// older backup only if no newer one can be restored.
func Newest(ctx context.Context, store repository.Store) (m archive.Manifest, ok bool, err error) {
	contents, err := list(ctx, store)
	if err != nil {
		return m, false, err
	}
	for _, name := range slices.Backward(contents.Fulls) {
		m, problem := usable(ctx, store, contents, name)
		if problem == "" {
			return m, true, nil
		}
	}
	return m, false, ctx.Err()
}

// usable says why a full backup cannot be restored; "" = it can.
func usable(ctx context.Context, store repository.Store, contents archive.Contents, name string) (m archive.Manifest, problem string) {
	m, err := readManifest(ctx, store, name)
	if err != nil {
		return m, err.Error()
	}
	return m, lacks(contents, name, m)
}

// lacks says what a full backup lacks to be restored; "" = nothing.
func lacks(contents archive.Contents, name string, m archive.Manifest) string {
	_, last := contents.Chain(max(m.Begin.First, 1))
	switch {
	case last < m.End.Index:
		return fmt.Sprintf("the log from entry %d on is missing", last+1)
	case !contents.Data[name]:
		return "its data are missing"
	}
	return ""
}

// newestManifest returns the manifest, of those that are whole, whose backup goes furthest; ok=false = there is none. The
// names do not tell: their times are those of several clocks.
func newestManifest(ctx context.Context, store repository.Store, contents archive.Contents) (newest archive.Manifest, ok bool, err error) {
	for _, name := range contents.Fulls {
		m, err := readManifest(ctx, store, name)
		if errors.Is(err, archive.ErrManifest) {
			continue
		}
		if err != nil {
			return newest, false, err
		}
		if !ok || cmp.Or(cmp.Compare(m.Generation, newest.Generation), cmp.Compare(m.End.Index, newest.End.Index)) >= 0 {
			newest, ok = m, true
		}
	}
	return newest, ok, nil
}

func readManifest(ctx context.Context, store repository.Store, full string) (m archive.Manifest, err error) {
	r, err := store.Get(ctx, archive.ManifestName(full))
	if err != nil {
		return m, err
	}
	m, err = archive.ReadManifest(r)
	return m, errors.Join(err, r.Close())
}

// Prune deletes the objects that Contents.Prunable names, and what interrupted backups have left. It returns the
// names of what it deleted; with dryRun, of what it would delete. apart says which backups do not count among the keep
// ones, although they could be restored. While the repository has backups of two histories, Prune deletes nothing. If
// an object cannot be deleted, Prune goes on with the others: deleteAll. It ends after pruneTime, and the next one goes on.
func Prune(ctx context.Context, store repository.Store, keep int, dryRun bool) (names, apart []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pruneTime, errPruneTime)
	defer cancel()
	contents, err := list(ctx, store)
	if err != nil {
		return nil, nil, err
	}
	var reach map[string]archive.Reach
	if len(contents.Fulls) > keep { // else all stay
		if reach, apart, err = reaches(ctx, store, contents); err != nil {
			return nil, apart, err
		}
	}
	names = contents.Prunable(keep, time.Now(), reach)
	parts, err := store.Parts(ctx, !dryRun)
	if err != nil {
		return nil, apart, err
	}
	left := []string{}
	for _, p := range parts {
		if p.State == repository.PartLeft {
			left = append(left, p.Name)
		}
	}
	if dryRun {
		return append(left, names...), apart, nil
	}
	deleted, err := deleteAll(ctx, store, names)
	return append(left, deleted...), apart, err
}

const (
	// pruneTime bounds Prune: the night's full backup is taken after it. It is long, as a store may need a second for each object.
	pruneTime = 4 * time.Hour
	// prunePatience is how long one deletion may take, and how long Prune works if some object cannot be deleted: each may wait
	// for a store that does not answer.
	prunePatience = 10 * time.Minute
	// pruneErrorsMax bounds the errors that Prune returns.
	pruneErrorsMax = 10
)

var (
	errPruneTime  = errors.New("a prune ends after 4 h")
	errDeleteTime = errors.New("it has not ended for 10 min, and was called off")
)

// deleteAll deletes objects, in the order of Contents.Prunable. It keeps the manifest of a full backup whose data were not
// deleted, and the last manifest if a piece was not: while one is there, the next Prune tries the rest again.
func deleteAll(ctx context.Context, store repository.Store, names []string) (gone []string, err error) {
	began, failed, pieceFailed := time.Now(), map[string]bool{}, false
	for i, name := range names {
		full, isManifest := strings.CutSuffix(name, archive.ManifestName(""))
		if isManifest && (failed[archive.DataName(full)] || pieceFailed && i == len(names)-1) {
			continue
		}
		e := deleteOne(ctx, store, name)
		if e == nil {
			gone = append(gone, name)
		} else {
			failed[name] = true
			pieceFailed = pieceFailed || !isManifest && !strings.HasSuffix(name, archive.DataName(""))
			if len(failed) <= pruneErrorsMax {
				err = errors.Join(err, fmt.Errorf("delete %s: %w", name, e))
			}
		}
		rest := len(names) - i - 1
		if rest > 0 && (ctx.Err() != nil || e != nil && time.Since(began) > prunePatience) {
			if e == nil { // else e has it
				err = errors.Join(err, context.Cause(ctx))
			}
			err = errors.Join(err, fmt.Errorf("%d more were not tried: the next prune goes on there", rest))
			break
		}
	}
	if more := len(failed) - pruneErrorsMax; more > 0 {
		err = errors.Join(err, fmt.Errorf("%d more could not be deleted", more))
	}
	return gone, err
}

// deleteOne deletes an object, if it is there.
func deleteOne(ctx context.Context, store repository.Store, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, prunePatience, errDeleteTime)
	defer cancel()
	if err := store.Delete(ctx, name); !errors.Is(err, repository.ErrNotFound) {
		return err
	}
	return nil
}

// reaches returns what each full backup says of itself, and in apart which of them do not count as whole because they
// end behind all of the log that is here.
func reaches(ctx context.Context, store repository.Store, contents archive.Contents) (reach map[string]archive.Reach, apart []string, err error) {
	reach = map[string]archive.Reach{}
	newest := contents.Newest().Last
	var first archive.Manifest
	firstName := ""
	for _, full := range contents.Fulls {
		m, err := readManifest(ctx, store, full)
		if errors.Is(err, archive.ErrManifest) {
			reach[full] = archive.Reach{Damaged: true}
			continue
		}
		if err != nil {
			return nil, apart, fmt.Errorf("nothing was deleted: %s: %w", full, err)
		}
		if firstName == "" {
			first, firstName = m, full
		}
		if sameCluster(first, m.ClusterID, m.Generation) != nil {
			return nil, apart, fmt.Errorf("nothing was deleted: %s is of cluster %q (%s), generation %d, and %s of cluster %q (%s), generation %d: move those that do not belong here to another repository",
				firstName, first.Cluster, first.ClusterID, first.Generation, full, m.Cluster, m.ClusterID, m.Generation)
		}
		whole := lacks(contents, full, m) == ""
		if whole && m.End.Index > newest && newest > 0 {
			whole = false
			apart = append(apart, fmt.Sprintf("%s does not count: it ends at entry %d, and the log here at entry %d", full, m.End.Index, newest))
		}
		reach[full] = archive.Reach{First: m.Begin.First, End: m.End.Index, Whole: whole}
	}
	return reach, apart, nil
}
