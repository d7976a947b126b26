package binlog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Each target is seeded with the events of the golden files and some built ones. It expects no
// panic, and that the parts of a parsed event are consistent.

func addGolden(f *testing.F, take func(e Event) bool) {
	for n := 1; n <= 2; n++ {
		events, _ := readGolden(f, n)
		for e, err := range Events(events) {
			if err != nil {
				f.Fatal(err)
			}
			if take(e) {
				f.Add([]byte(e))
			}
		}
	}
}

func FuzzParseEvent(f *testing.F) {
	addGolden(f, func(Event) bool { return true })
	f.Add([]byte(query("BEGIN")))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEvent(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("error %v", err)
			}
			return
		}
		if int(e.Length()) != len(b) || len(e.Body()) > len(b)-HeaderBytes {
			t.Errorf("length %d of %d bytes", e.Length(), len(b))
		}
		_ = VerifyChecksum(e)
		if q, err := ParseQuery(e); err == nil {
			IsACLStatement(q.Text)
		}
		if _, err := ParseFormatDescription(e); err == nil {
			for _, midFile := range []bool{false, true} {
				clean, err := CleanFormatDescription(e, midFile)
				if err != nil || VerifyChecksum(clean) != nil || len(clean) != len(e) || clean.Flags()&FlagInUse != 0 {
					t.Errorf("clean %x of %x: %v", clean, e, err)
				}
			}
		}
		if name, pos, err := ParseRotate(e); err == nil {
			again, p, err := ParseRotate(AppendFakeRotate(nil, 1, name, pos))
			if again != name || p != pos || err != nil {
				t.Errorf("rotate to %q, %d becomes %q, %d, %v", name, pos, again, p, err)
			}
		}
		if set, err := ParsePreviousGTIDs(e); err == nil {
			again, err := ParsePreviousGTIDs(AppendPreviousGTIDs(nil, 1, 2, 3, set))
			if err != nil || !again.Equal(set) {
				t.Errorf("%v becomes %v, %v", set, again, err)
			}
		}
	})
}

func FuzzParseGTID(f *testing.F) {
	addGolden(f, func(e Event) bool { return e.Type() == TypeGTID || e.Type() == TypeGTIDTagged })
	f.Add([]byte(gtidEvent(clock{n: 1, immediate: 2, first: 3, length: 70000, versions: make([]byte, 16)})))
	f.Add([]byte(tagged("tag", clock{n: 1 << 60, committed: -1, seq: 1 << 40, immediate: 1 << 55, length: 300})))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEvent(b)
		if err != nil {
			return
		}
		info, err := ParseGTID(e)
		if err == nil && (info.GTID.N == 0 || info.GTID.N > gtid.MaxN) {
			t.Errorf("%+v has a number that no transaction has", info)
		}
	})
}

func FuzzTransactions(f *testing.F) {
	for n := 1; n <= 2; n++ {
		events, _ := readGolden(f, n)
		for tr := range Transactions(events) {
			f.Add(tr.Raw)
		}
	}
	f.Add(append(transaction(1, rows(1)...), transaction(2, query("DROP TABLE t"))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for tr, err := range Transactions(b) {
			if err != nil {
				return
			}
			n := 0
			for again, err := range Transactions(tr.Raw) {
				if n++; err != nil || again.GTIDInfo != tr.GTIDInfo || !bytes.Equal(again.Raw, tr.Raw) || n > 1 {
					t.Errorf("%x alone: %+v, %v", tr.Raw, again, err)
				}
			}
			out, ok := WrapPayload(nil, tr.Raw)
			if !ok {
				continue
			}
			for again, err := range Transactions(out) {
				if err != nil || again.GTID != tr.GTID || len(again.Raw) != len(out) {
					t.Errorf("%x wrapped: %+v, %v", tr.Raw, again, err)
				}
			}
			was, err1 := HasRowEvents(tr.Raw)
			is, err2 := HasRowEvents(out)
			if was != is || err1 != nil || err2 != nil {
				t.Errorf("%x: rows %v, %v; wrapped %v, %v", tr.Raw, was, err1, is, err2)
			}
		}
	})
}

func FuzzHasRowEvents(f *testing.F) {
	addGolden(f, func(e Event) bool { return e.Type() == TypeTransactionPayload })
	f.Add([]byte(payloadEvent(f, compressionZSTD, query("BEGIN"), event(TypeXID, 1))))
	f.Add([]byte(payloadEvent(f, compressionNone, rows(10)...)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if found, err := HasRowEvents(b); err != nil && (found || !errors.Is(err, ErrMalformed)) {
			t.Errorf("%v, %v", found, err)
		}
	})
}

func FuzzHeartbeat(f *testing.F) {
	f.Add([]byte(AppendHeartbeat(nil, 1, "q.000001", 4711)))
	f.Add([]byte(AppendHeartbeatV2(nil, 1, "q.000001", 1<<40)))
	f.Add([]byte(event(TypeHeartbeatV2, 9, 1, 1, 1, 1, 'a', 0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEvent(b)
		if err != nil {
			return
		}
		name, pos, err := ParseHeartbeat(e)
		if err != nil {
			return
		}
		again, p, err := ParseHeartbeat(AppendHeartbeatV2(nil, 1, name, pos))
		if again != name || p != pos || err != nil {
			t.Errorf("%q, %d becomes %q, %d, %v", name, pos, again, p, err)
		}
	})
}

// FuzzParseSessionQuery: a QUERY event gives settings, none of them empty, or is refused.
func FuzzParseSessionQuery(f *testing.F) {
	addGolden(f, func(e Event) bool { return e.Type() == TypeQuery })
	f.Add([]byte(query("BEGIN")))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEvent(b)
		if err != nil {
			return
		}
		q, err := ParseSessionQuery(e)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, s := range q.Settings {
			if s.Name == "" || s.Value == "" || seen[s.Name] {
				t.Errorf("setting %q = %q", s.Name, s.Value)
			}
			seen[s.Name] = true
		}
		if plain, err := ParseQuery(e); err != nil || plain.Text != q.Text || plain.Schema != q.Schema {
			t.Errorf("the statement is %q in %q, and %q in %q, %v", q.Text, q.Schema, plain.Text, plain.Schema, err)
		}
	})
}
