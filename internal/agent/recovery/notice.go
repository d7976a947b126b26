package recovery

import (
	"math"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

const (
	// LedWithin is how long a leader that was lost still counts: elections take less.
	LedWithin = 10 * time.Second
	// AskMax bounds how long the others are asked what they say of a recovery (AskFor).
	AskMax = 500 * time.Millisecond
	// NeverLed is Own.SinceLeader of a node that has had no leader since it started.
	NeverLed = time.Duration(math.MaxInt64)
	// rejectedMax bounds the list of rejected recoveries: each is a person's mistake. The
	// oldest are dropped first.
	rejectedMax = 16
)

// AskFor is how long a node asks the others: half of its election timeout at most. Two
// former members that start together must not elect one another meanwhile.
func AskFor(election time.Duration) time.Duration { return min(AskMax, election/2) }

// Own is what a former member knows when it judges a recovery without it.
type Own struct {
	// News: the recovery is later than all that this node goes by.
	News bool
	// Rejected: this node has noted durably that it rejects this recovery.
	Rejected bool
	// Unnoted: this node rejects this recovery, and could not note that. It goes on as if the leader of
	// that moment were there, until it restarts.
	Unnoted bool
	// Superseded: this node has accepted an earlier recovery, and serves nothing.
	Superseded bool
	// SinceLeader is how long ago this node had a leader, which may be itself. 0 = it has one.
	SinceLeader time.Duration
}

func (o Own) led() bool {
	return o.Unnoted || !o.Superseded && o.SinceLeader < LedWithin
}

// mustReject tells whether a recovery is to be rejected for good: there is a leader now, or
// this node has rejected it before. Nobody can force a recovery beside a node that answers so.
func (o Own) mustReject() bool {
	return o.News && (o.Rejected || o.Unnoted || !o.Superseded && o.SinceLeader == 0)
}

// Word is what a former member says of a recovery to another former member that asks.
type Word struct {
	// Refuses: it rejects the recovery, and has noted that durably.
	Refuses bool `json:"refuses"`
	// Led: it has a leader, or had one less than LedWithin ago, or it rejects the recovery and could not note that.
	Led bool `json:"led"`
}

// Decision is what a former member does about a recovery without it.
type Decision int

const (
	// Ignore: the recovery is no news.
	Ignore Decision = iota
	// Accept: it serves nothing any more, and votes for nobody.
	Accept
	// Defer: there may be a leader again soon. The notice comes again.
	Defer
	// Reject: a majority runs. This recovery is rejected for good.
	Reject
)

func (d Decision) String() string {
	return []string{"ignore", "accept", "defer", "reject"}[d]
}

// Decide decides from what the node knows and what the others that answer say.
func Decide(own Own, others ...Word) Decision {
	refuses, led := own.mustReject(), own.led()
	for _, o := range others {
		refuses, led = refuses || o.Refuses, led || o.Led
	}
	switch {
	case !own.News:
		return Ignore
	case refuses:
		return Reject
	case led:
		return Defer
	}
	return Accept
}

// confirm decides once more, when a node that has accepted has stopped: a leader that
// was there meanwhile was elected by a majority that runs.
func confirm(own Own) Decision {
	switch {
	case !own.News:
		return Ignore
	case own.Rejected || own.led():
		return Reject
	}
	return Accept
}

// Notices judges the recoveries without this node that it hears of. Its methods may be
// called at once from several goroutines if the functions may be.
type Notices struct {
	// Look returns what the node knows now.
	Look func(cluster.Recovery) Own
	// Reject notes durably that a recovery is rejected.
	Reject func(cluster.Recovery) error
}

// Word answers another former member. It says that this node rejects the recovery only once
// that is durable; an error means that it could not be noted.
func (n Notices) Word(r cluster.Recovery) (Word, error) {
	own := n.Look(r)
	if !own.News {
		return Word{}, nil
	}
	w := Word{Refuses: own.Rejected, Led: own.led()}
	if !own.mustReject() || own.Rejected {
		return w, nil
	}
	err := n.Reject(r)
	w.Refuses = err == nil
	return w, err
}

// Decide decides about a recovery that the node was told of. ask returns what the others
// say; it may take AskFor, so the node looks at itself before and after. An error means
// that a rejection could not be noted: it counts until the node restarts.
func (n Notices) Decide(r cluster.Recovery, ask func() []Word) (Decision, error) {
	d := Decide(n.Look(r))
	if d == Accept || d == Defer {
		others := ask()
		d = Decide(n.Look(r), others...)
	}
	return d, n.note(d, r)
}

// Confirm decides about a recovery that Decide accepted, when the node has stopped. Only
// then is it noted that the recovery counts.
func (n Notices) Confirm(r cluster.Recovery) (Decision, error) {
	d := confirm(n.Look(r))
	return d, n.note(d, r)
}

func (n Notices) note(d Decision, r cluster.Recovery) error {
	if d != Reject || n.Look(r).Rejected {
		return nil
	}
	return n.Reject(r)
}

// Rejected are the recoveries that a node rejects, the oldest first.
type Rejected []cluster.Recovery

// Has tells whether a recovery is rejected. A later recovery is not, even if it has the
// version of a rejected one because it was made on the other side.
func (l Rejected) Has(r cluster.Recovery) bool { return slices.ContainsFunc(l, r.Is) }

// With returns the list with one more recovery, bounded.
func (l Rejected) With(r cluster.Recovery) Rejected {
	r = r.Told()
	r.GTIDs = ""
	l = append(slices.Clone(l), r)
	return l[max(0, len(l)-rejectedMax):]
}

// Version is the latest version among them; 0 = there is none.
func (l Rejected) Version() (v uint64) {
	for _, r := range l {
		v = max(v, r.Version)
	}
	return v
}

// Above returns the state before a recovery, with its version raised so that the recovery is
// later than all that this node has rejected or accepted.
func Above(before cluster.State, rejected Rejected, superseded *cluster.Recovery) cluster.State {
	before.Version = max(before.Version, rejected.Version())
	if superseded != nil {
		before.Version = max(before.Version, superseded.Version)
	}
	return before
}
