package events

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/mysqld"
)

const now = 1000

func name(n string) mysqld.EventName { return mysqld.EventName{Schema: "shop", Name: n} }

func row(n string, status mysqld.EventStatus, altered uint64) mysqld.EventRow {
	return mysqld.EventRow{EventName: name(n), Status: status, Altered: altered}
}

func event(status mysqld.EventStatus, altered uint64, change ...func(*mysqld.Event)) mysqld.Event {
	e := mysqld.Event{EventRow: row("e", status, altered), Definer: "app@%"}
	for _, c := range change {
		c(&e)
	}
	return e
}

func once(e *mysqld.Event)  { e.Once = true }
func due(e *mysqld.Event)   { e.Once, e.Due = true, true }
func ended(e *mysqld.Event) { e.Ended = true }

func nobody(mysqld.EventName) bool { return false }

// text is a plan in a line.
func text(p Plan) string {
	var parts []string
	for _, e := range p.Hold {
		parts = append(parts, fmt.Sprintf("hold %s", e.Status))
	}
	for _, e := range p.Set {
		parts = append(parts, fmt.Sprintf("set %s", e.Status))
	}
	for _, r := range p.Record {
		parts = append(parts, fmt.Sprintf("record %s %d", r.Status, r.Altered))
	}
	for _, n := range p.Forget {
		parts = append(parts, "forget "+n.Name)
	}
	for _, d := range p.Doubts {
		parts = append(parts, "doubt "+strings.Fields(d.Why)[2])
	}
	return strings.Join(parts, ", ")
}

func TestDecide(t *testing.T) {
	const on, off, elsewhere = mysqld.EventEnabled, mysqld.EventDisabled, mysqld.EventElsewhere
	rows := func(r ...mysqld.EventRow) []mysqld.EventRow { return r }
	for _, c := range []struct {
		what    string
		event   mysqld.Event
		rows    []mysqld.EventRow
		first   string // at a promotion
		started string // later
	}{
		{"a replica's, which was enabled", event(elsewhere, 10), rows(row("e", on, 10)), "set ENABLED", "doubt changed"},
		{"a replica's, which was disabled", event(elsewhere, 10), rows(row("e", off, 10)), "set DISABLED", "doubt changed"},
		{"a replica's, changed after it was recorded", event(elsewhere, 11), rows(row("e", on, 10)), "doubt changed", "doubt changed"},
		{"a replica's, never recorded", event(elsewhere, 10), nil, "doubt changed", "doubt changed"},
		{"a replica's, once, later", event(elsewhere, 10, once), rows(row("e", on, 10)), "set ENABLED", "doubt changed"},
		{"a replica's, once, due", event(elsewhere, 10, due), rows(row("e", on, 10)), "doubt due", "doubt due"},
		{"a replica's, once, due and done", event(elsewhere, 10, due), rows(row("e", off, 10)), "set DISABLED", "doubt changed"},
		{"a replica's, which has ended", event(elsewhere, 10, ended), rows(row("e", on, 10)), "", ""},
		{"a replica's, which has ended, never recorded", event(elsewhere, 10, ended), nil, "", ""},
		{"a former primary's", event(on, 10), rows(row("e", on, 10)), "", ""},
		{"a former primary's, done since on another one", event(on, 10, due), rows(row("e", off, 10)), "hold DISABLED", "record ENABLED 10"},
		{"a former primary's, due since", event(on, 10, due), rows(row("e", on, 10)), "hold ELSEWHERE, doubt due", ""},
		{"an adopted server's, due", event(on, 10, due), nil, "hold ELSEWHERE, doubt due", "record ENABLED 10"},
		{"an adopted server's", event(on, 10), nil, "record ENABLED 10", "record ENABLED 10"},
		{"an adopted server's, disabled", event(off, 10), nil, "record DISABLED 10", "record DISABLED 10"},
		{"disabled now", event(off, 20), rows(row("e", on, 10)), "record DISABLED 20", "record DISABLED 20"},
		{"changed a second ago", event(on, now-1), nil, "", ""},
		{"changed two seconds ago", event(on, now-2), nil, "record ENABLED 998", "record ENABLED 998"},
		{"once, done here", event(off, 10, due), rows(row("e", on, 10)), "record DISABLED 10", "record DISABLED 10"},
		{"dropped", event(on, 10), rows(row("e", on, 10), row("d", on, 10)), "forget d", "forget d"},
	} {
		look := mysqld.EventsLook{Now: now, Events: []mysqld.Event{c.event}, Rows: c.rows}
		for started, want := range map[bool]string{false: c.first, true: c.started} {
			p := Decide(look, started, nobody)
			if got := text(p); got != want {
				t.Errorf("%s, started %t: %q, want %q", c.what, started, got, want)
			}
			late := c.started
			if c.event.Status == elsewhere { // an event that could not be set at the promotion is decided as then
				late = c.first
			}
			if got := text(Decide(look, true, func(n mysqld.EventName) bool { return n == c.event.EventName })); started && got != late {
				t.Errorf("%s, late: %q, want %q", c.what, got, late)
			}
			if p.Start == started {
				t.Errorf("%s, started %t: start %t", c.what, started, p.Start)
			}
			for _, e := range append(p.Set, p.Hold...) {
				if e.Definer != c.event.Definer || e.Altered != c.event.Altered {
					t.Errorf("%s: %+v is set", c.what, e)
				}
			}
		}
	}
}

// TestDecideOnce: whatever is found at a promotion, an event that may have run is not run, and the plan changes
// nothing that is already as it should be.
func TestDecideOnce(t *testing.T) {
	statuses := []mysqld.EventStatus{mysqld.EventEnabled, mysqld.EventDisabled, mysqld.EventElsewhere}
	for _, is := range statuses {
		for _, recorded := range append(statuses[:2:2], "") {
			for _, altered := range []uint64{10, 11} {
				look := mysqld.EventsLook{Now: now, Events: []mysqld.Event{event(is, 10, due)}}
				if recorded != "" {
					look.Rows = []mysqld.EventRow{row("e", recorded, altered)}
				}
				status := is
				p := Decide(look, false, nobody)
				for _, e := range append(p.Set, p.Hold...) {
					if status = e.Status; status == is {
						t.Errorf("%s, recorded %s %d: it is set to what it is", is, recorded, altered)
					}
				}
				if status == mysqld.EventEnabled {
					t.Errorf("%s, recorded %s %d: it runs a second time", is, recorded, altered)
				}
			}
		}
	}
}
