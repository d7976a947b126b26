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
	// DropAfterMin is the least drop-after: with less, a pause of a process would already count.
	DropAfterMin = 500 * time.Millisecond
	// ackCatchUpMax is how far behind, in time, a node may be when ACKs begin to wait for it again: they stop
	// for that long.
	ackCatchUpMax = time.Second
)

// checkAck refuses values of require-ack and drop-after that make no sense.
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

// AcksWait tells whether ACKs wait for more than the commit.
func (s State) AcksWait() bool {
	for _, m := range s.Members {
		if m.RequireAck {
			return true
		}
	}
	return s.Durability != DurabilityMajority
}

// ackNeeds tells whether every ACK has to wait for a member.
func (s State) ackNeeds(m Member, dropped map[NodeID]bool) bool {
	drops := m.DropAfter > 0 && dropped[m.ID] // with DropAfter 0, ACKs wait again
	return s.Durability == DurabilityAll && m.Votes() || m.RequireAck && !drops
}

// AckIndex is the index up to which commits may be acknowledged: committed, and on the disks that the
// durability policy and the members' require-ack name. on is the newest index that each member has on disk, as
// far as the leader knows. dropped are the members whose require-ack is dropped for now. The policy itself is
// never dropped.
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

// twoSites is the newest index that voters in two sites have. A majority of the voters has it as well, because
// it is limited to the commit index.
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

// AckWaitsFor returns the members for which the ACK of an entry waits.
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

// AckSight is what a leader knows at one moment.
type AckSight struct {
	// Now is a time that stops while the leader stands still. So the leader's own standstill does not count as
	// silence of others.
	Now time.Duration
	// Commit is the newest committed index. On is the newest index that each member has on its disk.
	Commit uint64
	On     map[NodeID]uint64
	// Heard is when each member was heard last. A member that was heard less than Silence ago counts as there.
	Heard   map[NodeID]time.Duration
	Silence time.Duration
}

// AckEvent is an event that people must not miss: from now on ACKs do not wait for a member, or wait for it
// again.
type AckEvent struct {
	Node    string
	Dropped bool
	// Text says it in one line.
	Text string
}

// AckWatch decides on a leader when the require-ack of a member with drop-after is dropped, and when it is
// restored. Its zero value is that of a new leader, for which every requirement is in force.
type AckWatch struct {
	nodes   map[NodeID]ackNode
	dropped map[NodeID]bool
}

// ackNode is what is known of one member. At any time the watch asks whether the member has one index: what was
// committed when the member had the index before that. So the memory does not grow, however far the member is
// behind.
type ackNode struct {
	// at: the member has everything that was committed at this time.
	at time.Duration
	// index is the index that the member has to have next; since is when it was the commit index.
	index uint64
	since time.Duration
}

// Dropped returns the members whose require-ack is dropped. The map belongs to the watch.
func (w *AckWatch) Dropped() map[NodeID]bool { return w.dropped }

// Look takes what the leader sees. It is called some dozens of times a second.
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
			n.at = min(n.at, sight.Heard[m.ID]) // perhaps it lacks nothing, but it is gone
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

// End ends the watch when the node stops leading. The next leader decides about dropping again.
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

// lacks is how many committed entries a member lacks. A member that has not told this leader yet what it has
// may lack nothing.
func lacks(m Member, sight AckSight, late time.Duration) AckWait {
	w := AckWait{Node: m.Name, Seconds: max(0, late).Seconds()}
	if on := sight.On[m.ID]; on == 0 {
		w.Unknown = true
	} else {
		w.Entries = sight.Commit - min(sight.Commit, on)
	}
	return w
}

// AckWait is a member for which ACKs wait, or do not wait any more.
type AckWait struct {
	Node string `json:"node"`
	// Entries is how many committed entries the member lacks, Seconds for how long it has not had all of them.
	// Unknown: it has not told this leader yet what it has.
	Entries uint64  `json:"entries"`
	Unknown bool    `json:"entries_unknown,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Lacks says in words how much the member lacks.
func (w AckWait) Lacks() string {
	if w.Unknown {
		return "an unknown number of entries"
	}
	return units.Count(w.Entries, "entry", "entries")
}

// AckStatus is the state of a leader's ACKs, for people.
type AckStatus struct {
	// Index is the index up to which ACKs may go.
	Index uint64
	// Waiting are the members for which ACKs wait now. Dropped are the members whose require-ack is dropped.
	Waiting, Dropped []AckWait
}

// Status returns the state of the ACKs; index is the index up to which they may go.
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

// ParseDegrade reads a degrade policy: how long ACKs wait for a node, 0 = without a limit.
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

// Degrade says what happens to a member's require-ack while the member is away; "" = it has no require-ack.
func (m Member) Degrade() string {
	switch {
	case !m.RequireAck:
		return ""
	case m.DropAfter == 0:
		return "wait"
	}
	return "drop-after=" + units.Duration(m.DropAfter)
}
