package datadir

import (
	"errors"
	"log/slog"
	"time"
)

// Promise is promise.json, the longest election timeout by which the node may have promised
// something that still holds (I5): after a restart it votes for nobody as long.
const Promise = "promise.json"

// promiseRecord is the content of promise.json.
type promiseRecord struct {
	ElectionTimeout time.Duration `json:"election_timeout_ns"`
}

// Promised notes durably that the node promises by an election timeout from now on,
// and returns the longest one with which what it promised before may still hold. A file
// that is damaged may have said any up to most, the longest of all configurations.
//
// noted=false: it is not on disk, and has to get there. That is no error but where the
// file says less: without one there is nothing to fall behind.
func (d Dir) Promised(own, most time.Duration, logger *slog.Logger) (longest time.Duration, noted bool, err error) {
	var r promiseRecord
	found, err := d.load(file{name: Promise, remedy: "it is made anew"}, &r)
	_, damaged := errors.AsType[*DamageError](err)
	switch {
	case err != nil && !damaged:
		return 0, false, err
	case !found: // it never ran, or was an older quorate, whose leaders went by their own
		longest = own
	case damaged || r.ElectionTimeout <= 0 || r.ElectionTimeout > most:
		r, longest = promiseRecord{}, max(own, most)
		logger.Warn("what this node has promised is damaged: it votes for nobody for as long as any promise can hold",
			"file", d.Join(Promise), "for", longest, "error", err)
	default:
		longest = max(own, r.ElectionTimeout)
	}
	if r.ElectionTimeout == longest {
		return longest, true, nil
	}
	err = d.WritePromise(longest)
	if err != nil && r.ElectionTimeout == 0 {
		logger.Warn("note what this node promises", "error", err)
		return longest, false, nil
	}
	return longest, err == nil, err
}

// WritePromise notes durably that nothing holds but what is promised by an election
// timeout.
func (d Dir) WritePromise(own time.Duration) error {
	return d.replace(Promise, promiseRecord{ElectionTimeout: own})
}
