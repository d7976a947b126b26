package datadir

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/quorate/quorate/internal/sys/clock"
)

// Promise is promise.json, the longest election timeout for which a promise of the node may
// still hold (I5): after a restart the node votes for nobody for that long.
const Promise = "promise.json"

// promiseRetry is the pause between two tries to write it.
const promiseRetry = 10 * time.Second

// promiseRecord is the content of promise.json.
type promiseRecord struct {
	ElectionTimeout time.Duration `json:"election_timeout_ns"`
}

// Promises says what a node may have promised before it was started.
type Promises struct {
	// Longest is the longest election timeout for which a promise may hold.
	Longest time.Duration

	own   time.Duration
	noted bool
}

// Promised notes durably that the node promises by the election timeout own from now on,
// and returns what it may have promised before. A damaged file may have said any election
// timeout up to most, the longest that a configuration may have.
//
// A write that fails is an error only if the file on disk says less. If there is no usable
// file, the write is left to Forget.
func (d Dir) Promised(own, most time.Duration, logger *slog.Logger) (p Promises, err error) {
	var r promiseRecord
	longest := own
	found, err := d.Load(File{Name: Promise, Remedy: "a new one is made"}, &r)
	_, damaged := errors.AsType[*DamageError](err)
	switch {
	case err != nil && !damaged:
		return p, err
	case !found: // the node never ran, or ran an older quorate, whose leaders went by their own timeout
	case damaged || r.ElectionTimeout <= 0 || r.ElectionTimeout > most:
		r, longest = promiseRecord{}, max(own, most)
		logger.Warn("the file with this node's promises is damaged: the node votes for no other node for as long as any promise can hold",
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
		logger.Warn("cannot write down what this node promises", "error", err)
		return p, nil
	}
	p.noted = err == nil
	return p, err
}

// Forget writes that only the own promises hold, once the older ones are over. It begins later than
// consensus, which counts the same time: so they are over there, too. If the disk takes nothing, it
// tries again: the longer promise is the safe one.
func (p Promises) Forget(ctx context.Context, c clock.Clock, write func(own time.Duration) error, logger *slog.Logger) {
	if p.Longest == p.own && p.noted {
		return
	}
	for wait := p.Longest; clock.Sleep(ctx, c, wait) == nil; wait = promiseRetry {
		err := write(p.own)
		if err == nil {
			return
		}
		logger.Warn("cannot write down what this node promises: trying again", "error", err)
	}
}

// WritePromise notes durably that no promise holds for longer than the election timeout own.
func (d Dir) WritePromise(own time.Duration) error {
	return d.replace(Promise, promiseRecord{ElectionTimeout: own})
}
