package datadir

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/quorate/quorate/internal/sys/clock"
)

// Promise is promise.json, the longest election timeout by which the node may have promised
// something that still holds (I5): after a restart it votes for nobody as long.
const Promise = "promise.json"

// promiseRetry is the pause between two tries to write it.
const promiseRetry = 10 * time.Second

// promiseRecord is the content of promise.json.
type promiseRecord struct {
	ElectionTimeout time.Duration `json:"election_timeout_ns"`
}

// Promises are what a node may have promised before it was started.
type Promises struct {
	// Longest is the longest election timeout by which one of them may hold.
	Longest time.Duration

	own   time.Duration
	noted bool
}

// Promised notes durably that the node promises by an election timeout from now on,
// and returns what it promised before. A file that is damaged may have said any up to most,
// the longest of all configurations.
//
// That it is not on disk, and has to get there (Forget), is no error but where the file says
// less: without one there is nothing to fall behind.
func (d Dir) Promised(own, most time.Duration, logger *slog.Logger) (p Promises, err error) {
	var r promiseRecord
	longest := own
	found, err := d.Load(File{Name: Promise, Remedy: "a new one is made"}, &r)
	_, damaged := errors.AsType[*DamageError](err)
	switch {
	case err != nil && !damaged:
		return p, err
	case !found: // it never ran, or was an older quorate, whose leaders went by their own
	case damaged || r.ElectionTimeout <= 0 || r.ElectionTimeout > most:
		r, longest = promiseRecord{}, max(own, most)
		logger.Warn("what this node has promised is damaged: it votes for nobody for as long as any promise can hold",
			"file", d.Join(Promise), "for", longest, "error", err)
	default:
		longest = max(own, r.ElectionTimeout)
	}
	p = Promises{Longest: longest, own: own, noted: r.ElectionTimeout == longest}
	if p.noted {
		return p, nil
	}
	err = d.WritePromise(longest)
	if err != nil && r.ElectionTimeout == 0 {
		logger.Warn("note what this node promises", "error", err)
		return p, nil
	}
	p.noted = err == nil
	return p, err
}

// Forget forgets the promises once they are over. It began after the time from which consensus
// counts them. If the disk takes nothing it tries again: the longer promise is the safe one.
func (p Promises) Forget(ctx context.Context, c clock.Clock, write func(own time.Duration) error, logger *slog.Logger) {
	if p.Longest == p.own && p.noted {
		return
	}
	for wait := p.Longest; clock.Sleep(ctx, c, wait) == nil; wait = promiseRetry {
		err := write(p.own)
		if err == nil {
			return
		}
		logger.Warn("note what this node promises: it is tried again", "error", err)
	}
}

// WritePromise notes durably that nothing holds but what is promised by an election
// timeout.
func (d Dir) WritePromise(own time.Duration) error {
	return d.replace(Promise, promiseRecord{ElectionTimeout: own})
}
