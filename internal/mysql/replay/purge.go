package replay

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/seglog"
)

// Need is what one member still needs of the log.
type Need struct {
	Who string
	// From is the first index that it needs.
	From uint64
	// Why says what it needs them for.
	Why string
	// Known is false where this agent never heard of the member's state: it may need
	// everything.
	Known bool
}

// Retention says how much of the log is kept although nobody needs it. Entries that a member
// needs are kept in any case.
type Retention struct {
	// BytesMax: while the log is larger, its oldest segments may be removed.
	BytesMax int64
	// AgeMax: a segment whose last transaction is older may be removed; 0 = no bound.
	AgeMax time.Duration
	// UpTo is the last entry that may be removed; 0 = no bound.
	UpTo uint64
}

// PurgeInput is what PlanPurge decides from.
type PurgeInput struct {
	// Segments are the segments of the log, oldest first.
	Segments []seglog.SegmentInfo
	// Needs has every member once, including the node itself.
	Needs []Need
	// Marks are the durable marks of all full voters; 0 = none known.
	Marks     []uint64
	Retention Retention
	Now       time.Time
}

// Needs derives from the latest status of each member what it needs of a log, and the durable
// marks of the full voters. With an old status a member needs more, never less, because the
// figures only grow. One exception: a mark goes when mysqld's data go; but what such a node
// applies again is in its own log.
func Needs(members []status.Node) (all []Need, marks []uint64) {
	for _, m := range members {
		if m.Leaving {
			continue // if it comes back, its log begins where the others' logs do
		}
		n := Need{Who: m.Name, Known: m.Role != ""}
		// Keep also the last entry that it has: Raft compares the term of that entry.
		n.From, n.Why = m.LogCommit, "its log ends there"
		// An errant mysqld never applies anything again, and nobody counts on its data.
		errant := m.Role == status.RoleErrant
		switch {
		case m.Kind == cluster.KindFull && errant:
			marks = append(marks, 0)
		case m.Kind == cluster.KindFull:
			marks = append(marks, m.DurableMark)
		}
		// A learner may be a node without a mysqld.
		if m.Kind != cluster.KindLogger && m.Mysqld != status.MysqldNone && !errant && m.DurableMark+1 < n.From {
			n.From, n.Why = m.DurableMark+1, "durable mark"
		}
		if m.LogState == status.LogDamaged || m.LogState == status.LogRepairing {
			n.From, n.Why = min(n.From, m.LogFirst), "its log is "+string(m.LogState)
		}
		all = append(all, n)
	}
	return all, marks
}

// PlanPurge decides which of the oldest segments are removed. A segment is removed if retention
// allows it, no member needs any of it, and a majority of the full voters hold all of it
// durably in InnoDB. The last condition holds whatever the members say that they need: then
// nothing is lost even if every log is lost. Only whole segments are removed, the oldest first.
func PlanPurge(in PurgeInput) cluster.PurgePlan {
	p := cluster.PurgePlan{Segments: make([]cluster.PurgeSegment, 0, len(in.Segments))}
	left := int64(0) // the size of the log without the segments before s
	for _, s := range in.Segments {
		left += s.Bytes
	}
	kept := false
	for i, s := range in.Segments {
		out := cluster.PurgeSegment{First: s.FirstIndex, Last: s.LastIndex, Bytes: s.Bytes, Written: lastWritten(s)}
		needed := ""
		switch may, why := in.mayGo(i, left); {
		case !may:
			out.Why = "kept: " + why
		default:
			if needed = in.needed(s.LastIndex); needed != "" {
				out.Why = "kept: " + needed
			} else if kept {
				out.Why = "kept: an older segment is"
			} else {
				out.Purge, out.Why = true, why
			}
		}
		left -= s.Bytes
		if out.Purge {
			p.UpTo, p.Bytes = s.LastIndex, p.Bytes+s.Bytes
		}
		if !kept && needed != "" {
			p.Blocked = fmt.Sprintf("entries %d-%d would go by retention: %s", s.FirstIndex, s.LastIndex, needed)
		}
		kept = kept || !out.Purge
		p.Segments = append(p.Segments, out)
	}
	return p
}

// mayGo tells whether retention lets segment i go, and why. left is the size of it and all
// newer segments.
func (in PurgeInput) mayGo(i int, left int64) (bool, string) {
	s := in.Segments[i]
	switch {
	case i == len(in.Segments)-1:
		return false, "it is the one in use"
	case !s.Sealed:
		return false, "not all of it is committed"
	}
	written, r := in.written(i), in.Retention
	if r.UpTo != 0 && s.LastIndex > r.UpTo {
		return false, fmt.Sprintf("the request goes up to entry %d", r.UpTo)
	}
	age := max(in.Now.Sub(written), 0).Truncate(time.Second)
	old := r.AgeMax > 0 && !written.IsZero() && age > r.AgeMax
	switch {
	case left > r.BytesMax:
		return true, fmt.Sprintf("the log is larger than its retention (%s of %s)", units.Size(left), units.Size(r.BytesMax))
	case old:
		return true, fmt.Sprintf("it is older than its retention (age %s of %s)", units.Duration(age), units.Duration(r.AgeMax))
	case r.AgeMax > 0 && written.IsZero():
		return false, "there is no transaction in it, nor behind it"
	case r.AgeMax > 0:
		return false, fmt.Sprintf("within retention (age %s of %s, %s of %s)", units.Duration(age), units.Duration(r.AgeMax), units.Size(left), units.Size(r.BytesMax))
	}
	return false, fmt.Sprintf("within retention (%s of %s)", units.Size(left), units.Size(r.BytesMax))
}

// needed says which member needs an entry up to index last; "" = none does.
func (in PurgeInput) needed(last uint64) string {
	first := Need{Known: true, From: last + 1}
	for _, n := range in.Needs {
		if !n.Known {
			return fmt.Sprintf("nothing was heard of node %s since this agent started", n.Who)
		}
		if n.From < first.From {
			first = n
		}
	}
	if first.From <= last {
		return fmt.Sprintf("node %s needs it from index %d (%s)", first.Who, first.From, first.Why)
	}
	durable, want := 0, len(in.Marks)/2+1
	for _, m := range in.Marks {
		if m >= last {
			durable++
		}
	}
	if durable < want {
		return fmt.Sprintf("%d of %d full nodes hold it durably, %d must", durable, len(in.Marks), want)
	}
	return ""
}

// written returns when the last transaction of segment i was committed. A segment without
// transactions counts as old as the next one. Often the first segment has none; while it is
// kept, the log reaches back to the beginning, and a node can be made from the log alone.
func (in PurgeInput) written(i int) time.Time {
	for _, s := range in.Segments[i:] {
		if at := lastWritten(s); !at.IsZero() {
			return at
		}
	}
	return time.Time{}
}

// lastWritten returns when the last transaction in s was committed; zero if it has none.
func lastWritten(s seglog.SegmentInfo) time.Time {
	if s.LastTime == 0 {
		return time.Time{}
	}
	return time.Unix(s.LastTime, 0).UTC()
}
