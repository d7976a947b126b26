package ship

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/sys/clock"
)

// ErrEmpty is returned for a repository without a full backup, unless Config.New is set: an empty
// directory may be one whose disk is not mounted.
var ErrEmpty = errors.New("the repository is empty. If it is a new one, say so (quorate backup --new); else mount its disk")

// manifestTimeout bounds the storing of the manifest once ctx has ended.
const manifestTimeout = 2 * time.Minute

// Progress is told how far a full backup has come.
type Progress interface {
	// Begun says what is copied. Copied says how many bytes of the data have come up to now.
	Begun(archive.Start)
	Copied(bytes int64)
}

// Full takes a full backup, and ships the log that it needs. It returns the backup's name.
func Full(ctx context.Context, c Config, agent Agent, progress Progress) (name string, m archive.Manifest, err error) {
	contents, err := list(ctx, c.Store)
	if err != nil {
		return "", m, err
	}
	before, there, err := newestManifest(ctx, c.Store, contents)
	if err != nil {
		return "", m, err
	}
	if len(contents.Fulls) == 0 && !c.New {
		return "", m, ErrEmpty
	}
	if err := sameHistory(ctx, contents.Newest(), agent, c.Patience); err != nil {
		if there {
			err = restored(ctx, before, agent, err)
		}
		return "", m, err
	}
	eg, both := errgroup.WithContext(ctx) // both ends with the first error, or when all is done
	data, err := agent.Data(both)
	if err != nil {
		return "", m, err
	}
	defer func() { _ = data.Close() }()
	tee := &lateWriter{told: progress.Copied}
	in := archive.NewData(io.TeeReader(data, tee))
	start, err := in.Start()
	if err != nil {
		return "", m, err
	}
	if there {
		if err := sameCluster(before, start.ClusterID, start.Generation); err != nil {
			return "", m, err
		}
	}
	progress.Begun(start)
	name = archive.FullName(start.At, start.Node)
	log := logTaker{c: c, agent: agent, start: start, contents: contents}
	eg.Go(func() error { return log.run(both) })
	eg.Go(func() error {
		err := putObject(both, c.Store, archive.DataName(name), func(w io.Writer) error {
			return copyData(in, tee, io.TeeReader(data, tee), w, c.Recipients)
		})
		if err != nil {
			return err
		}
		log.until.Store(in.End().Index)
		return nil
	})
	err = eg.Wait()
	if err == nil {
		err = covered(ctx, c, start.Begin.First, in.End().Index)
	}
	if err != nil {
		return name, m, errors.Join(err, drop(ctx, c.Store, archive.DataName(name)))
	}
	newest, gtids := log.upTo(in.End().Index)
	m = archive.Manifest{
		Start: start, End: in.End(), Time: newest, GTIDs: gtids.String(), Data: archive.DataName(name),
		Bytes: tee.n, Encrypted: len(c.Recipients) > 0, Files: in.Files(),
	}
	return name, m, putManifest(ctx, c, name, m)
}

// putManifest stores the manifest: only that is missing, so it goes on for a while when ctx has ended.
func putManifest(ctx context.Context, c Config, name string, m archive.Manifest) error {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(manifestTimeout, func() { cancel(context.DeadlineExceeded) })
	})()
	return c.patient(late, func() error {
		return putObject(late, c.Store, archive.ManifestName(name), func(w io.Writer) error { return json.NewEncoder(w).Encode(m) })
	})
}

// copyData reads the data to their end, and writes them sealed to w.
func copyData(in *archive.Data, tee *lateWriter, rest io.Reader, w io.Writer, recipients []string) error {
	sealed, err := repository.Seal(w, recipients)
	if err != nil {
		return err
	}
	if err := tee.to(sealed); err != nil {
		return err
	}
	for {
		_, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	// After the tar the agent says whether the copy is whole.
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return err
	}
	return sealed.Close()
}

// lateWriter keeps what is written until to names the writer for it.
type lateWriter struct {
	kept bytes.Buffer
	w    io.Writer
	n    int64
	told func(int64)
}

// Write implements io.Writer.
func (l *lateWriter) Write(p []byte) (int, error) {
	l.n += int64(len(p))
	l.told(l.n)
	if l.w == nil {
		return l.kept.Write(p)
	}
	return l.w.Write(p)
}

func (l *lateWriter) to(w io.Writer) error {
	l.w = w
	_, err := l.kept.WriteTo(w)
	return err
}

// behindEvery is how often a node is asked again whose log is behind what another node has just
// shipped.
const behindEvery = time.Second

// sameHistory checks that a log has the newest piece of a repository. If that part of the log was
// purged, there is no check: a new full backup needs nothing so old.
func sameHistory(ctx context.Context, newest archive.Piece, agent Agent, patience time.Duration) error {
	if newest.Last == 0 {
		return nil
	}
	err := hasPiece(ctx, newest, agent)
	for until := time.Now().Add(patience); errors.Is(err, ErrBehind) && time.Now().Before(until); err = hasPiece(ctx, newest, agent) {
		if err := clock.Sleep(ctx, clock.Machine{}, behindEvery); err != nil {
			return err
		}
	}
	if errors.Is(err, ErrGap) {
		return nil
	}
	return err
}

// hasPiece checks that a log has the last entry of a piece.
func hasPiece(ctx context.Context, newest archive.Piece, agent Agent) error {
	log, err := agent.Log(ctx, newest.Last)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	in, err := archive.NewReader(log)
	if err != nil {
		return err
	}
	item, err := in.Next()
	if err != nil {
		return err
	}
	if item.Entry.Index == 0 { // a point: a log that lacks only this entry waits for it
		return ErrBehind
	}
	if !sameEntry(newest, item.Entry) {
		return fmt.Errorf("entry %d: %w", newest.Last, ErrHistory)
	}
	return nil
}

// sameCluster checks that a full backup is of the cluster with this id and generation. After a gap in the
// log nothing else shows it.
func sameCluster(full archive.Manifest, id string, generation uint64) error {
	if full.ClusterID != id || full.Generation != generation {
		return fmt.Errorf("it has backups of cluster %q, generation %d, and this is generation %d: %w", full.Cluster, full.Generation, generation, ErrHistory)
	}
	return nil
}

// drop deletes the data of a full backup that failed: without a manifest they are useless, and they are large.
func drop(ctx context.Context, store repository.Store, name string) error {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
	defer cancel()
	if err := store.Delete(late, name); !errors.Is(err, repository.ErrNotFound) {
		return err
	}
	return nil
}

// covered checks that the repository has the log of a full backup: somebody may have pruned it
// meanwhile.
func covered(ctx context.Context, c Config, first, end uint64) error {
	var contents archive.Contents
	err := c.patient(ctx, func() (err error) {
		contents, err = list(ctx, c.Store)
		return err
	})
	if err != nil {
		return err
	}
	if _, last := contents.Chain(first); last < end {
		return fmt.Errorf("the log from entry %d on is not in the repository any more: was it pruned meanwhile?", last+1)
	}
	return nil
}

// logTaker ships the log that a full backup needs.
type logTaker struct {
	c        Config
	agent    Agent
	start    archive.Start
	contents archive.Contents
	// until is the last entry that is needed; 0 = not known yet.
	until atomic.Uint64
	// marks say what the log has, second by second: the data end somewhere in there, and where is known only when
	// all of them are stored, hours later. A mark has some 200 bytes.
	marks []mark
	// point says that the next transaction begins a mark.
	point bool
}

// mark is a part of the log.
type mark struct {
	// last is its last entry. newest is the latest commit time of the log up to there, gtids are the part's own
	// transactions.
	last   uint64
	newest time.Time
	gtids  *gtid.Set
	// from is newest after its first transaction.
	from time.Time
}

// markEvery is how much of the log a mark has, by the commit times. A mark ends at a point of the log, too.
const markEvery = time.Second

// note adds an entry to the marks.
func (t *logTaker) note(index uint64, newest time.Time, all []archive.Transaction) {
	m := &t.marks[len(t.marks)-1]
	if len(all) > 0 && (t.point || newest.Sub(m.from) >= markEvery) {
		t.marks, t.point = append(t.marks, mark{gtids: new(gtid.Set), from: newest}), false
		m = &t.marks[len(t.marks)-1]
	}
	for _, tx := range all {
		m.gtids.Add(tx.GTID)
	}
	m.last, m.newest = index, newest
}

// upTo returns the latest commit time, and all transactions, up to an entry, and up to the end of its mark.
func (t *logTaker) upTo(index uint64) (newest time.Time, gtids *gtid.Set) {
	gtids = new(gtid.Set)
	for _, m := range t.marks {
		gtids.Union(m.gtids)
		if newest = m.newest; m.last >= index {
			break
		}
	}
	return newest, gtids
}

func (t *logTaker) run(ctx context.Context) error {
	begin, err := t.start.Begin.Log()
	if err != nil {
		return err
	}
	before := mark{last: t.start.Begin.First - 1, newest: t.start.Newest, gtids: new(gtid.Set)}
	if begin != nil {
		before.gtids = begin.GTIDs
	}
	t.marks, t.point = []mark{before}, true
	log, err := t.agent.Log(ctx, t.start.Begin.First)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	in, err := archive.NewReader(log)
	if err != nil {
		return err
	}
	k := &cutter{c: t.c, agent: t.agent, head: in.Head(), newest: t.start.Newest, full: true}
	defer func() { _ = k.close() }()
	pieces, covered := t.contents.Chain(t.start.Begin.First)
	if len(pieces) > 0 {
		k.behind = pieces[len(pieces)-1]
	}
	for {
		item, err := in.Next()
		if err != nil {
			return err
		}
		if item.Entry.Index == 0 {
			t.point = true
			// The commit index of a point at or behind until means that everything needed was
			// read.
			if until := t.until.Load(); until > 0 && item.Commit >= until {
				if err := k.ship(ctx); err != nil {
					return err
				}
				return k.ship(ctx) // if an archive has stored the last piece, this makes sure that it is whole
			}
			continue
		}
		all, err := archive.Transactions(item.Entry)
		if err != nil {
			return err
		}
		if item.Entry.Index > covered {
			err = k.add(ctx, item, all)
		} else {
			k.seen(all)
		}
		if err != nil {
			return err
		}
		t.note(item.Entry.Index, k.newest, all)
	}
}
