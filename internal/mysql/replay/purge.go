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
	// From: it needs the entries from this index on.
	From uint64
	// Why says what for.
	Why string
	// Known is false where nothing was ever heard of it: it may need everything.
	Known bool
}

// Retention says what may go although nobody needs it. It never says that
// something must go that somebody needs.
type Retention struct {
	// BytesMax: the oldest segments may go while the log is larger.
	BytesMax int64
	// AgeMax: a segment may go whose last transaction is older; 0 = no bound.
	AgeMax time.Duration
}

// PurgeInput is what PlanPurge decides from.
type PurgeInput struct {
	// Segments are the log's, oldest first.
	Segments []seglog.SegmentInfo
	// Needs has every member once, the node itself too.
	Needs []Need
	// Marks are the durable marks of all full voters; 0 = none known.
	Marks     []uint64
	Retention Retention
	Now       time.Time
}

// Needs makes of what the members said last what each needs of a log, and the
// durable marks of the full voters. An old status needs more, never less: its
// figures only grow. The exception is a mark that went because mysqld's data
// did; what such a node applies again is in its own log.
func Needs(members []status.Node) (all []Need, marks []uint64) {
	for _, m := range members {
		if m.Leaving {
			continue // its next log begins where others' do
		}
		n := Need{Who: m.Name, Known: m.Role != ""}
		// The entry before the first that it lacks is kept too: Raft compares
		// its term.
		n.From, n.Why = m.LogCommit, "its log ends there"
		// An errant mysqld never applies anything again, and nobody counts on its data.
		errant := m.Role == status.RoleErrant
		switch {
		case m.Kind == cluster.KindFull && errant:
			marks = append(marks, 0)
		case m.Kind == cluster.KindFull:
			marks = append(marks, m.DurableMark)
		}
		// A learner may be one without a mysqld, too.
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

// PlanPurge decides which of the oldest segments go. A segment goes if
// retention lets it, no member needs any of it, and, whatever the members say
// that they need, a majority of the full voters (two at least, or the only one)
// hold all of it durably in InnoDB: then it is no loss, even with every log
// gone. Only whole segments go, and none before all that are older.
func PlanPurge(in PurgeInput) cluster.PurgePlan {
	p := cluster.PurgePlan{Segments: make([]cluster.PurgeSegment, 0, len(in.Segments))}
	left := int64(0) // what is left of the log if all that were looked at go
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

// mayGo tells what retention says of segment i, with left bytes in it and all
// that are newer.
func (in PurgeInput) mayGo(i int, left int64) (bool, string) {
	s := in.Segments[i]
	switch {
	case i == len(in.Segments)-1:
		return false, "it is the one in use"
	case !s.Sealed:
		return false, "not all of it is committed"
	}
	written, r := in.written(i), in.Retention
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

// needed says who needs anything up to index last; "" = nobody.
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

// written is when the last transaction of segment i was committed. One without is as
// old as the next one: the first segment has none, often, and while it is there the log
// reaches back to the beginning, so that a node can be made from it alone.
func (in PurgeInput) written(i int) time.Time {
	for _, s := range in.Segments[i:] {
		if at := lastWritten(s); !at.IsZero() {
			return at
		}
	}
	return time.Time{}
}

// lastWritten is when the last transaction in s was committed; zero if it has none.
func lastWritten(s seglog.SegmentInfo) time.Time {
	if s.LastTime == 0 {
		return time.Time{}
	}
	return time.Unix(s.LastTime, 0).UTC()
}
