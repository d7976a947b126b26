package events

import (
	"fmt"

	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// quietBefore is how many seconds old the last change of an event has to be before it is recorded. The
// server counts in seconds: another change within the same second would look like the first.
const quietBefore = 2

// Plan is what is to be done, in this order.
type Plan struct {
	// Hold are events that would run otherwise, with the status that they get. The scheduler must not start before
	// all of them have it.
	Hold []mysqld.Event
	// Set are other events with the status that they get.
	Set []mysqld.Event
	// Start: then the scheduler may run.
	Start bool
	// Record are rows of the table to be written, Forget those to be removed.
	Record []mysqld.EventRow
	Forget []mysqld.EventName
	// Doubts are events that do not run, and why.
	Doubts []Doubt
}

// Doubt is an event that does not run though it perhaps should.
type Doubt struct {
	Event mysqld.EventName
	Why   string
}

func (d Doubt) String() string { return fmt.Sprintf("%v: %s", d.Event, d.Why) }

// Decide says what follows from what the primary's server has. started: its scheduler runs already, so
// this is not the first look of its epoch. late tells of an event that could not be set at the first look.
func Decide(look mysqld.EventsLook, started bool, late func(mysqld.EventName) bool) Plan {
	rows := make(map[mysqld.EventName]mysqld.EventRow, len(look.Rows))
	for _, r := range look.Rows {
		rows[r.EventName] = r
	}
	p := Plan{Start: !started}
	for _, e := range look.Events {
		row, recorded := rows[e.EventName]
		delete(rows, e.EventName)
		want, doubt := e.Status, ""
		first := !started || e.Status == mysqld.EventElsewhere && late(e.EventName)
		if first || e.Status == mysqld.EventElsewhere {
			want, doubt = wanted(e, row, recorded)
		}
		if want != e.Status && !first { // only a first look changes a status
			want, doubt = e.Status, unknown
		}
		if doubt != "" {
			p.Doubts = append(p.Doubts, Doubt{e.EventName, doubt})
		}
		if is := e.Status; want != is {
			e.Status = want
			if is == mysqld.EventEnabled {
				p.Hold = append(p.Hold, e)
			} else {
				p.Set = append(p.Set, e)
			}
		}
		if want != mysqld.EventElsewhere && look.Now >= e.Altered+quietBefore && e.EventRow != row {
			p.Record = append(p.Record, e.EventRow)
		}
	}
	for _, r := range look.Rows {
		if _, gone := rows[r.EventName]; gone {
			p.Forget = append(p.Forget, r.EventName)
		}
	}
	return p
}

// unknown is said of an event whose last change is not in the table.
const unknown = "it was changed just before the primary changed, or is set as an event of a replica: it is not known whether it should run"

// wanted is the status that an event gets before the scheduler starts, and why it does not run if that is in doubt.
func wanted(e mysqld.Event, row mysqld.EventRow, recorded bool) (mysqld.EventStatus, string) {
	status := e.Status
	if recorded && row.Altered == e.Altered {
		status = row.Status
	}
	switch {
	case e.Status == mysqld.EventDisabled: // the server says so of an event that has run, too
		return e.Status, ""
	case status == mysqld.EventElsewhere:
		if e.Ended {
			return status, ""
		}
		return status, unknown
	case status == mysqld.EventEnabled && e.Once && e.Due:
		return mysqld.EventElsewhere, "it was due before this node became the primary, and may have run"
	case status == mysqld.EventEnabled && e.Ended:
		return e.Status, "" // it does not run any more, and the server refuses to enable it
	}
	return status, ""
}
