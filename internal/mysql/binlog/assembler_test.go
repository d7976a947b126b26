package binlog

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// symbols are the events of the slow model, each with several events that mean
// the same for the borders. The model is a regular expression over them.
func symbols() map[byte][]Event {
	return map[byte][]Event{
		'G': {simpleGTID(1), tagged("tag", clock{n: 2})},
		'B': {query("BEGIN"), query("XA START X'31',X'',1")},
		'E': {query("COMMIT"), query("ROLLBACK"), query("rollback /* x */"), event(TypeXID, 1, 2, 3, 4, 5, 6, 7, 8),
			event(TypeXAPrepare, make([]byte, 14)...)},
		'X': {query("XA ROLLBACK X'31',X'',1")},
		'S': {query("CREATE TABLE t (a INT)"), query("XA COMMIT X'31',X'',1"), query("XA END X'31',X'',1"),
			query("SAVEPOINT `a`"), query("ROLLBACK TO `a`"), query("rollback to a"), query("begin"), query("B"), query("COMMI"),
			query("CREATE TABLE `t` (`a` int) START TRANSACTION")},
		'P': {event(TypeIntvar, make([]byte, 9)...), event(TypeRand, make([]byte, 16)...), event(TypeUserVar, 1, 2)},
		'I': {event(TypeTableMap, 1), event(TypeWriteRows, 1), event(TypeUpdateRows, 1), event(TypeDeleteRows, 1),
			event(TypePartialUpdateRows, 1), eventFlags(TypeRowsQuery, FlagIgnorable, 1), event(TypeBeginLoadQuery, 1),
			event(TypeExecuteLoadQuery, 1), event(TypeAppendBlock, 1), event(TypeViewChange, 1), event(TypeWriteRowsV1, 1)},
		'Y': {event(TypeTransactionPayload, 0)},
		'F': {AppendFakeRotate(nil, 1, "f", 4), event(TypeFormatDescription, 1), AppendPreviousGTIDs(nil, 1, 0, 0, nil), event(TypeStop)},
		'H': {AppendHeartbeat(nil, 1, "f", 4), AppendHeartbeatV2(nil, 1, "f", 4)},
		'K': {AppendIgnorable(nil, 1, nil), eventFlags(200, FlagIgnorable|FlagArtificial)},
		'U': {event(200), event(0), event(TypeAnonymousGTID, make([]byte, 60)...), event(TypeIncident, 1, 0, 0)},
	}
}

const (
	// oneTransaction is a transaction in the model's symbols.
	oneTransaction = `G[HK]*(B[ISPHK]*[EX]|(P[PHK]*)?S|X|Y)`
	controls       = `[FHK]*`
)

// modelSteps returns the step of each event of a stream, up to the first event that does not
// fit. A prefix fits if one of a few ends makes it whole.
func modelSteps(stream string) []Step {
	whole := regexp.MustCompile(`^(` + controls + oneTransaction + `)*` + controls + `$`)
	justEnded := regexp.MustCompile(`^(` + controls + oneTransaction + `)+$`)
	var steps []Step
	for i := range stream {
		prefix := stream[:i+1]
		fits := false
		for _, end := range []string{"", "E", "S"} {
			fits = fits || whole.MatchString(prefix+end)
		}
		last := stream[i]
		switch {
		case !fits:
			return steps
		case last == 'G':
			steps = append(steps, StepBegin)
		case last == 'H', strings.ContainsRune("FK", rune(last)) && whole.MatchString(prefix):
			steps = append(steps, StepControl)
		case justEnded.MatchString(prefix):
			steps = append(steps, StepEnd)
		default:
			steps = append(steps, StepInner)
		}
	}
	return steps
}

func drawStream(t *rapid.T) string {
	valid := rapid.StringMatching(`((F|H|K){0,2}` + `G(H|K)?(B(I|S|P|H|K){0,6}(E|X)|P{0,2}S|X|Y)){0,4}(F|H|K)?`)
	stream := []byte(valid.Draw(t, "valid"))
	// Damage it now and then.
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		if len(stream) == 0 {
			break
		}
		i := rapid.IntRange(0, len(stream)-1).Draw(t, "at")
		switch rapid.IntRange(0, 2).Draw(t, "change") {
		case 0:
			stream = append(stream[:i], stream[i+1:]...)
		case 1:
			stream[i] = rapid.SampledFrom([]byte("GBEXSPIYFHKU")).Draw(t, "symbol")
		case 2:
			stream = append(stream[:i+1], stream[i:]...)
		}
	}
	return string(stream)
}

func TestAssemblerAgainstModel(t *testing.T) {
	events := symbols()
	rapid.Check(t, func(t *rapid.T) {
		stream := drawStream(t)
		want := modelSteps(stream)
		var a Assembler
		var got []Step
		var failed error
		for i := range stream {
			e := rapid.SampledFrom(events[stream[i]]).Draw(t, "event")
			step, err := a.Feed(e)
			if failed != nil {
				if err == nil || err.Error() != failed.Error() {
					t.Fatalf("%s: after %v the error is %v", stream, failed, err)
				}
				continue
			}
			if failed = err; err != nil {
				if !errors.Is(err, ErrStream) && !errors.Is(err, ErrIncident) {
					t.Fatalf("%s: %v", stream, err)
				}
				continue
			}
			got = append(got, step)
			if in := step == StepBegin || step == StepInner; step != StepControl && a.InTransaction() != in {
				t.Fatalf("%s: InTransaction = %v after event %d, step %d", stream, !in, i, step)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", stream, diff)
		}
	})
}

func TestAssemblerErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		e    Event
		err  error
	}{
		{"incident", event(TypeIncident, 1, 0, 0), ErrIncident},
		{"anonymous", event(TypeAnonymousGTID, make([]byte, 60)...), ErrStream},
		{"short GTID", event(TypeGTID, 1, 2), ErrMalformed},
		{"short QUERY", event(TypeQuery, 1, 2), ErrMalformed},
		{"empty QUERY", query(""), ErrMalformed},
		{"unknown", event(200), ErrStream},
		{"event outside", query("BEGIN"), ErrStream},
	} {
		var a Assembler
		if _, err := a.Feed(c.e); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestAssemblerLength: a transaction that is shorter than its GTID event says is refused at its
// end, a longer one as soon as it is too long.
func TestAssemblerLength(t *testing.T) {
	whole := transaction(5, rows(10)...)
	info, err := ParseGTID(Event(whole[:len(whole)-len(concat(rows(10)...))]))
	if err != nil || info.TransactionLength != uint64(len(whole)) {
		t.Fatalf("the builder says %d for %d bytes: %v", info.TransactionLength, len(whole), err)
	}
	feed := func(first Event, events ...Event) (fed int, err error) {
		var a Assembler
		for _, e := range append([]Event{first}, events...) {
			if _, err = a.Feed(e); err != nil {
				return fed, err
			}
			fed++
		}
		return fed, nil
	}
	first, _, _ := CutEvent(whole)
	if n, err := feed(first, rows(10)...); err != nil {
		t.Errorf("event %d: %v", n, err)
	}
	if n, err := feed(first, rows(9)...); !errors.Is(err, ErrStream) || n != 4 {
		t.Errorf("shorter: event %d, %v", n, err)
	}
	if n, err := feed(first, rows(1000)...); !errors.Is(err, ErrStream) || n != 3 {
		t.Errorf("longer: event %d, %v", n, err)
	}
}

// TestTransactionsRoundTrip: joined transactions come apart in the same places, and a cut
// anywhere is noticed.
func TestTransactionsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var body []byte
		var want [][]byte
		edges := map[int]bool{0: true}
		for n := range rapid.IntRange(0, 5).Draw(t, "transactions") {
			if rapid.Bool().Draw(t, "control") {
				body = AppendIgnorable(body, 1, []byte("x"))
				edges[len(body)] = true
			}
			events := rapid.SampledFrom([][]Event{rows(3), {query("DROP TABLE t")}, {payloadOf(compressionNone, 0, nil)}}).Draw(t, "events")
			want = append(want, transaction(uint64(n)+1, events...))
			body = append(body, want[n]...)
			edges[len(body)] = true
		}
		var got [][]byte
		for tr, err := range Transactions(body) {
			if err != nil {
				t.Fatal(err)
			}
			if tr.GTID.N != uint64(len(got))+1 {
				t.Fatalf("GTID %v as number %d", tr.GTID, len(got))
			}
			got = append(got, tr.Raw)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		cut := rapid.IntRange(0, len(body)).Draw(t, "cut")
		var failed error
		for _, err := range Transactions(body[:cut]) {
			failed = err
		}
		if (failed == nil) != edges[cut] {
			t.Fatalf("cut at %d of %d: %v", cut, len(body), failed)
		}
	})
}

func TestTransactionsRefusesHeartbeatInside(t *testing.T) {
	body := concat(simpleGTID(1), AppendHeartbeat(nil, 1, "f", 4), query("DROP TABLE t"))
	for tr, err := range Transactions(body) {
		if !errors.Is(err, ErrStream) {
			t.Errorf("got %v, %v", tr, err)
		}
	}
}

func TestTransactionsStops(t *testing.T) {
	n := 0
	for range Transactions(append(transaction(1, rows(1)...), transaction(2, rows(1)...)...)) {
		n++
		break
	}
	for range Events(concat(rows(1)...)) {
		n++
		break
	}
	if n != 2 {
		t.Errorf("%d rounds", n)
	}
}

// A head is placed like the whole event, by its type and announced length. Events that are
// placed by their content are refused.
func TestAssemblerHeads(t *testing.T) {
	id := simpleGTID(1)
	var events []Event
	for e := range Events(transaction(1, query("BEGIN"), event(TypeTableMap, make([]byte, 30)...), event(TypeWriteRows, make([]byte, 40)...),
		event(TypeRowsQuery, make([]byte, 30)...), event(TypeXID, make([]byte, 8)...))) {
		events = append(events, e)
	}
	var a Assembler
	for i, e := range events {
		var step Step
		var err error
		if i < 2 || e.Type() == TypeXID {
			step, err = a.Feed(e)
		} else {
			step, err = a.FeedHead(e[:HeaderBytes])
		}
		want := StepInner
		switch i {
		case 0:
			want = StepBegin
		case len(events) - 1:
			want = StepEnd
		}
		if err != nil || step != want {
			t.Fatalf("event %d: %v, %v", i, step, err)
		}
	}
	for name, tc := range map[string]struct {
		before []Event
		head   Event
	}{
		"QUERY":            {[]Event{id}, query("BEGIN")},
		"GTID":             {nil, id},
		"XID":              {[]Event{id, query("BEGIN")}, event(TypeXID, make([]byte, 8)...)},
		"rows before":      {[]Event{id}, event(TypeWriteRows, 1)},
		"payload within":   {[]Event{id, query("BEGIN")}, event(TypeTransactionPayload, 1)},
		"heartbeat":        {[]Event{id}, event(TypeHeartbeat, 'f')},
		"incident":         {[]Event{id}, event(TypeIncident, 1)},
		"longer than said": {[]Event{gtidEvent(clock{n: 1, immediate: 1, first: 1, length: 200})}, event(TypeTransactionPayload, make([]byte, 300)...)},
	} {
		var a Assembler
		for _, e := range tc.before {
			if _, err := a.Feed(e); err != nil {
				t.Fatal(err)
			}
		}
		if step, err := a.FeedHead(tc.head[:HeaderBytes]); err == nil {
			t.Errorf("%s: step %v", name, step)
		} else if _, again := a.Feed(query("BEGIN")); !errors.Is(again, err) {
			t.Errorf("%s: %v, then %v", name, err, again)
		}
	}
}
