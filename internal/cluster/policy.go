package cluster

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/config/units"
)

const (
	// DropAfterMin is the least drop-after: below it a pause of a process would do.
	DropAfterMin = 500 * time.Millisecond
	// ackCatchUpMax is how far behind, in time, a node may be that ACKs wait for
	// again: they stand still for that long.
	ackCatchUpMax = time.Second
)

// checkAck refuses what cannot be asked of a node's ACKs.
func (c NodeChange) checkAck(m Member) error {
	required := m.RequireAck
	set(&required, c.RequireAck)
	switch {
	case c.DropAfter == nil || *c.DropAfter == 0:
		return nil
	case *c.DropAfter < DropAfterMin:
		return fmt.Errorf("drop-after must be %s at least, not %s", units.Duration(DropAfterMin), units.Duration(*c.DropAfter))
	case !required:
		return fmt.Errorf("no ACK waits for node %s: drop-after has no effect without require-ack", m.Name)
	}
	return nil
}

// AcksWait tells whether an ACK waits for more than the commit.
func (s State) AcksWait() bool {
	for _, m := range s.Members {
		if m.RequireAck {
			return true
		}
	}
	return s.Durability != DurabilityMajority
}

// ackNeeds tells whether no ACK may pass a member by.
func (s State) ackNeeds(m Member, dropped map[NodeID]bool) bool {
	drops := m.DropAfter > 0 && dropped[m.ID] // or it was changed to wait since
	return s.Durability == DurabilityAll && m.Votes() || m.RequireAck && !drops
}

// AckIndex is up to which index commits may be acknowledged: committed, and on
// the disks that the durability policy and the members' require-ack name. on is
// the newest index that each member has there, as far as the leader knows; dropped
// are the members whose require-ack is dropped for now. The policy itself is never.
func (s State) AckIndex(commit uint64, on map[NodeID]uint64, dropped map[NodeID]bool) uint64 {
	index := commit
	for _, m := range s.Members {
		if s.ackNeeds(m, dropped) {
			index = min(index, on[m.ID])
		}
	}
	if s.Durability == DurabilitySiteMajority {
		index = min(index, s.twoSites(on))
	}
	return index
}

// twoSites is the newest index that voters in two sites have. A majority of the
// voters has it anyway: it is committed.
func (s State) twoSites(on map[NodeID]uint64) uint64 {
	bySite := map[string]uint64{}
	for _, m := range s.Members {
		if m.Votes() && m.Site != "" {
			bySite[m.Site] = max(bySite[m.Site], on[m.ID])
		}
	}
	first, second := uint64(0), uint64(0)
	for _, index := range bySite {
		first, second = max(first, index), max(second, min(first, index))
	}
	return second
}

// AckWaitsFor returns the members that the ACK of an entry waits for.
func (s State) AckWaitsFor(index uint64, on map[NodeID]uint64, dropped map[NodeID]bool) (waits []Member) {
	has := map[string]bool{}
	for _, m := range s.Members {
		if m.Votes() && m.Site != "" && on[m.ID] >= index {
			has[m.Site] = true
		}
	}
	elsewhere := s.Durability == DurabilitySiteMajority && len(has) < 2
	for _, m := range s.Members {
		if on[m.ID] < index && (s.ackNeeds(m, dropped) || elsewhere && m.Votes() && !has[m.Site]) {
			waits = append(waits, m)
		}
	}
	return waits
}

// AckSight is what a leader sees at a moment.
type AckSight struct {
	// Now is a time that stands still while the leader does, so that its own
	// standstill is nobody's silence.
	Now time.Duration
	// Commit is the newest committed index, On the newest that each member has on
	// its disk.
	Commit uint64
	On     map[NodeID]uint64
	// Heard is when each member was heard last. Less than Silence ago is now.
	Heard   map[NodeID]time.Duration
	Silence time.Duration
}

// AckEvent is an event that nobody may miss: from now on ACKs do not wait for a member,
// or wait for it again.
type AckEvent struct {
	Node    string
	Dropped bool
	// Text says it in a line.
	Text string
}

// AckWatch decides on a leader when the require-ack of a member with drop-after
// is dropped, and when it is taken back. Its zero value is that of a new leader,
// in whose eyes every requirement is in force.
type AckWatch struct {
	nodes   map[NodeID]ackNode
	dropped map[NodeID]bool
}

// ackNode is what is known of one member. What is asked of it is one index after
// another: what was committed when it had the one before. So it takes no more
// memory however far it is behind.
type ackNode struct {
	// at: it has all that was committed then.
	at time.Duration
	// index is what it has to have next, since when.
	index uint64
	since time.Duration
}

// Dropped are the members whose require-ack is dropped. The map is the watch's.
func (w *AckWatch) Dropped() map[NodeID]bool { return w.dropped }

// Look takes what the leader sees, some dozen times a second.
func (w *AckWatch) Look(s State, sight AckSight) (events []AckEvent) {
	if w.nodes == nil {
		w.nodes, w.dropped = map[NodeID]ackNode{}, map[NodeID]bool{}
	}
	for _, m := range s.Members {
		near := w.observe(m, sight)
		late := sight.Now - w.nodes[m.ID].at
		switch {
		case !w.dropped[m.ID]:
			if m.RequireAck && m.DropAfter > 0 && late >= max(m.DropAfter, sight.Silence) {
				w.dropped[m.ID] = true
				events = append(events, AckEvent{m.Name, true, fmt.Sprintf("the require-ack of node %s is dropped: "+
					"it has lacked committed entries for %v, now %s", m.Name, late.Round(100*time.Millisecond), lacks(m, sight, late).Lacks())})
			}
		case !m.RequireAck:
			delete(w.dropped, m.ID)
			events = append(events, AckEvent{m.Name, false, fmt.Sprintf("the require-ack of node %s was taken away", m.Name)})
		case near || m.DropAfter == 0:
			delete(w.dropped, m.ID)
			events = append(events, AckEvent{m.Name, false, fmt.Sprintf("the require-ack of node %s is in force again", m.Name)})
		}
	}
	w.forget(s)
	return events
}

// observe notes how far a member is. near: it has caught up.
func (w *AckWatch) observe(m Member, sight AckSight) (near bool) {
	n, known := w.nodes[m.ID]
	if !known {
		n = ackNode{at: sight.Now, index: sight.Commit, since: sight.Now}
	}
	if sight.On[m.ID] >= n.index {
		silent := known && sight.Now-sight.Heard[m.ID] >= sight.Silence
		near = sight.Now-n.since <= ackCatchUpMax && !silent
		switch {
		case silent:
			n.at = min(n.at, sight.Heard[m.ID]) // it may lack nothing, and is gone
		case w.dropped[m.ID] && !near:
		case sight.On[m.ID] >= sight.Commit:
			n.at = sight.Now
		default:
			n.at = n.since
		}
		n.index, n.since = sight.Commit, sight.Now
	}
	w.nodes[m.ID] = n
	return near
}

// forget drops what is known of former members.
func (w *AckWatch) forget(s State) {
	if len(w.nodes) <= len(s.Members) {
		return
	}
	members := map[NodeID]bool{}
	for _, m := range s.Members {
		members[m.ID] = true
	}
	maps.DeleteFunc(w.nodes, func(id NodeID, _ ackNode) bool { return !members[id] })
	maps.DeleteFunc(w.dropped, func(id NodeID, _ bool) bool { return !members[id] })
}

// End is the end of the leader: what it dropped is for the next one to decide.
func (w *AckWatch) End(s State) (events []AckEvent) {
	for _, m := range s.Members {
		if w.dropped[m.ID] {
			events = append(events, AckEvent{m.Name, false,
				fmt.Sprintf("this node is no longer the leader: the next leader decides whether to drop the require-ack of node %s", m.Name)})
		}
	}
	*w = AckWatch{}
	return events
}

// lacks is what a member lacks of what is committed. A member that has not told this
// leader what it has may lack nothing.
func lacks(m Member, sight AckSight, late time.Duration) AckWait {
	w := AckWait{Node: m.Name, Seconds: max(0, late).Seconds()}
	if on := sight.On[m.ID]; on == 0 {
		w.Unknown = true
	} else {
		w.Entries = sight.Commit - min(sight.Commit, on)
	}
	return w
}

// AckWait is a member that ACKs wait for, or do not wait for any more.
type AckWait struct {
	Node string `json:"node"`
	// Entries is how much it lacks of what is committed, Seconds since when it has
	// not had everything. Unknown: it has not told this leader yet what it has.
	Entries uint64  `json:"entries"`
	Unknown bool    `json:"entries_unknown,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Lacks says how much it lacks.
func (w AckWait) Lacks() string {
	if w.Unknown {
		return "an unknown number of entries"
	}
	return units.Count(w.Entries, "entry", "entries")
}

// AckStatus is what people want to know of a leader's ACKs.
type AckStatus struct {
	// Index is up to which ACKs may go.
	Index uint64
	// Waiting is whom they wait for now, Dropped whose require-ack is dropped.
	Waiting, Dropped []AckWait
}

// Status says how it is; index is up to which ACKs may go.
func (w *AckWatch) Status(s State, sight AckSight, index uint64) AckStatus {
	st := AckStatus{Index: index}
	wait := func(m Member) AckWait {
		return lacks(m, sight, sight.Now-w.nodes[m.ID].at)
	}
	if index < sight.Commit {
		for _, m := range s.AckWaitsFor(index+1, sight.On, w.dropped) {
			st.Waiting = append(st.Waiting, wait(m))
		}
	}
	for _, m := range s.Members {
		if w.dropped[m.ID] {
			st.Dropped = append(st.Dropped, wait(m))
		}
	}
	return st
}

// ErrDegrade refuses a degrade policy that says nothing.
var ErrDegrade = errors.New("degrade must be wait, or drop-after=DURATION as in drop-after=10s")

// ParseDegrade reads a degrade policy: how long ACKs wait for a node, 0 = as long
// as it takes.
func ParseDegrade(text string) (time.Duration, error) {
	if text == "wait" {
		return 0, nil
	}
	after, ok := strings.CutPrefix(text, "drop-after")
	d, err := units.ParseDuration(strings.TrimLeft(after, "= "))
	if !ok || err != nil || d <= 0 {
		return 0, fmt.Errorf("%w, not %q", ErrDegrade, text)
	}
	return d, nil
}

// Degrade says what becomes of a member's require-ack while it is not there; "" =
// there is none.
func (m Member) Degrade() string {
	switch {
	case !m.RequireAck:
		return ""
	case m.DropAfter == 0:
		return "wait"
	}
	return "drop-after=" + units.Duration(m.DropAfter)
}
