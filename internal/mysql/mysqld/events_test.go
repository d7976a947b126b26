package mysqld

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestEvents: an event gets a status on this server alone, and nothing else of the event changes. The table of
// events is written like a client's transaction, by an account that can do little else.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	a := openAlone(t, p)
	dba := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	dba.SetMaxOpenConns(1)
	look := func() EventsLook {
		t.Helper()
		l, err := a.LookAtEvents(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := look(); l.Events != nil || l.Rows != nil || l.Now == 0 {
		t.Errorf("a new server has %+v", l)
	}
	const owner = "`a@b`@`10.1.%`"
	mustExec(t, dba, "CREATE DATABASE shop", "CREATE TABLE shop.runs (event VARCHAR(20))", "CREATE USER "+owner, "GRANT ALL ON shop.* TO "+owner,
		"SET SESSION sql_mode = 'ANSI_QUOTES', time_zone = '+05:00', character_set_client = 'latin1', collation_connection = 'latin1_german1_ci', timestamp = 1800000000",
		`CREATE DEFINER=`+owner+` EVENT shop."näght`+"`"+`ly" ON SCHEDULE EVERY 1 HOUR STARTS '2026-01-01 00:30:00' COMMENT 'it''s' DO INSERT INTO shop.runs VALUES ('nightly')`,
		"CREATE EVENT shop.due ON SCHEDULE AT '2020-01-01' + INTERVAL 50 YEAR ON COMPLETION PRESERVE DISABLE DO INSERT INTO shop.runs VALUES ('due')",
		"CREATE EVENT shop.over ON SCHEDULE EVERY 1 SECOND STARTS '2027-01-15' ENDS '2027-01-16' ON COMPLETION PRESERVE DISABLE DO INSERT INTO shop.runs VALUES ('over')")
	events := look().Events // a name that was sent as UTF-8, and read as latin1
	nightly := Event{EventRow: EventRow{EventName{"shop", "nÃ¤ght`ly"}, EventEnabled, 1800000000}, Definer: "a@b@10.1.%", Charset: "latin1", Collation: "latin1_german1_ci"}
	at := slices.IndexFunc(events, func(e Event) bool { return e.Name == nightly.Name })
	if at < 0 || len(events) != 3 {
		t.Fatalf("events: %+v", events)
	}
	if diff := cmp.Diff(nightly, events[at]); diff != "" {
		t.Errorf("an event (-want +got):\n%s", diff)
	}
	definition := func() (text string) {
		t.Helper()
		err := a.query1(ctx(t), "event", `SELECT CONCAT_WS('|', definer, time_zone, event_definition, interval_value, interval_field, sql_mode, starts, on_completion,
			created, last_altered, event_comment, character_set_client, collation_connection, database_collation) FROM information_schema.events WHERE event_name LIKE 'n%ght%'`, nil, &text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before, executed := definition(), gtidsOf(t, a)
	for _, status := range []EventStatus{EventElsewhere, EventDisabled, EventElsewhere, EventEnabled} {
		nightly.Status = status
		gone := nightly
		gone.Name = "gone"
		not, err := p.SetEvents(ctx(t), []Event{gone, nightly}) // an event that cannot be set does not stop the others
		if err != nil || len(not) != 1 || not[gone.EventName] == nil {
			t.Fatalf("%v, %v", not, err)
		}
		if got := look().Events[at].Status; got != status {
			t.Errorf("set to %s, it is %s", status, got)
		}
		if diff := cmp.Diff(before, definition()); diff != "" {
			t.Errorf("set to %s, the event is another one (-want +got):\n%s", status, diff)
		}
	}
	if now := gtidsOf(t, a); now != executed {
		t.Errorf("events were set by transactions: %s, before %s", now, executed)
	}
	recordsEvents(t, p, nightly)
	account := login(t, s, RouterUser, s.cfg.Secrets.Router())
	mustBeForbidden(t, account, "CREATE EVENT "+EventsSchema+".e ON SCHEDULE EVERY 1 DAY DO SELECT 1", "DROP TABLE "+EventsSchema+".events")
	runsOnce(t, a, dba)
}

// TestSetEventOfSwe7: an event whose character set lacks a letter of its statement can be kept from running, whoever made
// it. Before, it kept every event from running.
func TestSetEventOfSwe7(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	a := openAlone(t, p)
	dba := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	dba.SetMaxOpenConns(1)
	mustExec(t, dba, "SET NAMES utf8mb4", "CREATE DATABASE `日本`", "USE `日本`",
		"SET SESSION character_set_client = swe7", "CREATE EVENT seven ON SCHEDULE EVERY 1 HOUR DO SET @a = 1",
		"SET SESSION character_set_client = latin1", "CREATE EVENT western ON SCHEDULE EVERY 1 HOUR DO SET @a = 1")
	for _, status := range []EventStatus{EventEnabled, EventElsewhere, EventDisabled} {
		look, err := a.LookAtEvents(ctx(t))
		if err != nil || len(look.Events) != 2 {
			t.Fatalf("%+v, %v", look, err)
		}
		for i := range look.Events {
			look.Events[i].Status = status
		}
		not, err := p.SetEvents(ctx(t), look.Events)
		if err != nil || (len(not) > 0) != (status == EventEnabled) {
			t.Errorf("%s: %v, %v", status, not, err)
		}
		if look, err = a.LookAtEvents(ctx(t)); err != nil || look.Events[0].Status != status || look.Events[1].Status != status {
			t.Errorf("%s: %+v, %v", status, look, err)
		}
	}
}

// recordsEvents: the table has what was written last, in transactions.
func recordsEvents(t *testing.T, p *Process, e Event) {
	t.Helper()
	executed := gtidsOf(t, p.Admin())
	rows := []EventRow{e.EventRow, {EventName{"shop", "ä"}, EventDisabled, 7}}
	changed := EventRow{rows[1].EventName, EventEnabled, 8}
	for _, c := range []struct {
		record []EventRow
		forget []EventName
		want   []EventRow
	}{
		{rows, nil, rows},
		{[]EventRow{changed}, []EventName{e.EventName, {"no", "such"}}, []EventRow{changed}},
		{nil, nil, []EventRow{changed}},
	} {
		if err := p.RecordEvents(ctx(t), c.record, c.forget); err != nil {
			t.Fatal(err)
		}
		l, err := p.Admin().LookAtEvents(ctx(t))
		if diff := cmp.Diff(c.want, l.Rows); err != nil || diff != "" {
			t.Errorf("%v, rows (-want +got):\n%s", err, diff)
		}
	}
	if now := gtidsOf(t, p.Admin()); now == executed {
		t.Error("the table is not in the binlog")
	}
}

// runsOnce: a recurring event that is enabled goes on with the next time of its schedule.
func runsOnce(t *testing.T, a *Admin, dba *sql.DB) {
	t.Helper()
	mustExec(t, dba, "SET SESSION sql_mode = '', timestamp = DEFAULT",
		"CREATE EVENT shop.tick ON SCHEDULE EVERY 1 SECOND STARTS NOW() - INTERVAL 1 DAY DO INSERT INTO shop.runs VALUES ('tick')",
		"CREATE EVENT shop.hourly ON SCHEDULE EVERY 1 HOUR STARTS NOW() - INTERVAL 30 MINUTE DO INSERT INTO shop.runs VALUES ('hourly')")
	if err := a.SetScheduler(ctx(t), true); err != nil {
		t.Fatal(err)
	}
	for ticks := 0; ticks < 2; time.Sleep(50 * time.Millisecond) {
		if err := a.query1(ctx(t), "runs", "SELECT COUNT(*) FROM shop.runs WHERE event = 'tick'", nil, &ticks); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.SetScheduler(ctx(t), false); err != nil {
		t.Fatal(err)
	}
	var others int
	if err := a.query1(ctx(t), "runs", "SELECT COUNT(*) FROM shop.runs WHERE event <> 'tick'", nil, &others); err != nil || others != 0 {
		t.Errorf("%d runs of other events, %v", others, err)
	}
}

// TestEventsAreNoView: who puts a view in place of the table of events has no function of his run by quorate's account,
// with all privileges and outside of the binlog.
func TestEventsAreNoView(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	a := openAlone(t, p)
	for _, q := range []string{"CREATE USER u@localhost IDENTIFIED BY 'Aa1-u'", "GRANT ALL ON " + EventsSchema + ".* TO u@localhost", "GRANT ALL ON evil.* TO u@localhost"} {
		if err := a.exec(ctx(t), "account", q); err != nil {
			t.Fatal(err)
		}
	}
	u := login(t, s, "u", "Aa1-u")
	mustExec(t, u, "CREATE DATABASE evil", "CREATE TABLE evil.ran (who VARCHAR(99))", "CREATE DATABASE IF NOT EXISTS "+EventsSchema,
		"CREATE FUNCTION evil.f() RETURNS VARCHAR(9) SQL SECURITY INVOKER MODIFIES SQL DATA BEGIN INSERT INTO evil.ran VALUES (CURRENT_USER()); RETURN 'ENABLED'; END",
		"CREATE SQL SECURITY INVOKER VIEW "+EventsSchema+".events AS SELECT 'a' AS event_schema, 'b' AS event_name, evil.f() AS status, 1 AS altered")
	for range 2 {
		if l, err := a.LookAtEvents(ctx(t)); err == nil || !strings.Contains(err.Error(), "view") || !strings.Contains(err.Error(), "DROP VIEW") {
			t.Errorf("%+v, %v", l, err)
		}
	}
	var ran int
	if err := a.query1(ctx(t), "runs", "SELECT COUNT(*) FROM evil.ran", nil, &ran); err != nil || ran != 0 {
		t.Errorf("the function ran %d times, %v", ran, err)
	}
	mustExec(t, u, "DROP VIEW "+EventsSchema+".events")
	if l, err := a.LookAtEvents(ctx(t)); err != nil || l.Rows != nil {
		t.Errorf("%+v, %v", l, err)
	}
}

func gtidsOf(t *testing.T, a *Admin) string {
	t.Helper()
	set, err := a.GTIDExecuted(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	return set
}
