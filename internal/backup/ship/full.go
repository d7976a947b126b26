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
)

// Progress is told how far a full backup is.
type Progress interface {
	// Begun says what is copied, Copied how many bytes of the data came so far.
	Begun(archive.Start)
	Copied(bytes int64)
}

// Full takes a full backup, and the log that it needs. It returns the backup's name.
func Full(ctx context.Context, c Config, agent Agent, progress Progress) (name string, m archive.Manifest, err error) {
	contents, err := list(ctx, c.Store)
	if err != nil {
		return "", m, err
	}
	if err := sameHistory(ctx, contents.Newest(), agent); err != nil {
		return "", m, err
	}
	eg, ctx := errgroup.WithContext(ctx)
	data, err := agent.Data(ctx)
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
	if err := sameCluster(ctx, c.Store, contents, start.ClusterID); err != nil {
		return "", m, err
	}
	progress.Begun(start)
	name = archive.FullName(start.At, start.Node)
	log := logTaker{c: c, agent: agent, start: start, contents: contents}
	eg.Go(func() error { return log.run(ctx) })
	eg.Go(func() error {
		err := c.Store.Put(ctx, archive.DataName(name), func(w io.Writer) error {
			return copyData(in, tee, io.TeeReader(data, tee), w, c.Recipients)
		})
		if err != nil {
			return fmt.Errorf("store %s: %w", archive.DataName(name), err)
		}
		log.until.Store(in.End().Index)
		return nil
	})
	if err := eg.Wait(); err != nil {
		return name, m, err
	}
	m = archive.Manifest{
		Start: start, End: in.End(), Time: log.time, GTIDs: log.gtids.String(), Data: archive.DataName(name),
		Bytes: tee.n, Encrypted: len(c.Recipients) > 0, Files: in.Files(),
	}
	err = c.Store.Put(context.WithoutCancel(ctx), archive.ManifestName(name), func(w io.Writer) error { return json.NewEncoder(w).Encode(m) })
	if err != nil {
		return name, m, fmt.Errorf("store %s: %w", archive.ManifestName(name), err)
	}
	return name, m, nil
}

// copyData stores what is read of the data, sealed.
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
	// Behind the tar the agent says whether it was whole.
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return err
	}
	return sealed.Close()
}

// lateWriter keeps what is written until it is known where that goes.
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

// sameHistory holds that a log goes on with the newest piece of a repository, as far as it can be seen:
// what was purged is before anything that a new full backup needs.
func sameHistory(ctx context.Context, newest archive.Piece, agent Agent) error {
	if newest.Last == 0 {
		return nil
	}
	log, err := agent.Log(ctx, newest.Last)
	if IsGap(err) {
		return nil
	}
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
	if !sameEntry(newest, item.Entry) {
		return fmt.Errorf("entry %d: %w", newest.Last, ErrHistory)
	}
	return nil
}

// sameCluster holds that a repository is of the cluster with an id, by its newest full backup: behind a gap
// nothing else shows it.
func sameCluster(ctx context.Context, store repository.Store, contents archive.Contents, id string) error {
	if len(contents.Fulls) == 0 {
		return nil
	}
	m, err := readManifest(ctx, store, contents.Fulls[len(contents.Fulls)-1])
	if err != nil {
		return err
	}
	if m.ClusterID != id {
		return fmt.Errorf("it has backups of cluster %q: %w", m.Cluster, ErrHistory)
	}
	return nil
}

// IsGap tells whether an agent's log was purged behind what was asked for.
func IsGap(err error) bool { return errors.Is(err, ErrGap) }

// logTaker ships the log that a full backup needs.
type logTaker struct {
	c        Config
	agent    Agent
	start    archive.Start
	contents archive.Contents
	// until is the last entry that is needed; 0 = that is not known so far.
	until atomic.Uint64
	gtids *gtid.Set
	time  time.Time
}

func (t *logTaker) run(ctx context.Context) error {
	begin, err := t.start.Begin.Log()
	if err != nil {
		return err
	}
	if t.gtids = new(gtid.Set); begin != nil {
		t.gtids = begin.GTIDs.Clone()
	}
	log, err := t.agent.Log(ctx, t.start.Begin.First)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	in, err := archive.NewReader(log)
	if err != nil {
		return err
	}
	k := &cutter{c: t.c, head: in.Head(), newest: t.start.Newest}
	defer func() { _ = k.close() }()
	_, covered := t.contents.Chain(t.start.Begin.First)
	for {
		item, err := in.Next()
		if err != nil {
			return err
		}
		if item.Entry.Index == 0 {
			// until is read before the point came: a point behind it is one of all.
			if until := t.until.Load(); until > 0 && item.Commit >= until {
				t.time = k.newest
				return k.ship(ctx)
			}
			continue
		}
		all, err := archive.Transactions(item.Entry)
		if err != nil {
			return err
		}
		for _, tx := range all {
			t.gtids.Add(tx.GTID)
		}
		if item.Entry.Index > covered {
			err = k.add(ctx, item, all)
		} else {
			k.seen(all)
		}
		if err != nil {
			return err
		}
	}
}
