package ledger

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestID(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		writer, seq := rapid.Uint32Max(1<<31-1).Draw(t, "writer"), rapid.Uint32().Draw(t, "seq")
		id := MakeID(writer, seq)
		if id < 0 || id.Writer() != writer || id.Seq() != seq {
			t.Fatalf("MakeID(%d, %d) = %d, read back as %v", writer, seq, int64(id), id)
		}
		p := id.Payload()
		if len(p) < payloadBytesMin || len(p) > payloadBytesMax || !bytes.Equal(p, id.Payload()) {
			t.Fatalf("payload of %v has %d bytes or changes", id, len(p))
		}
		if bytes.Equal(p, MakeID(writer, seq+1).Payload()) {
			t.Fatalf("payload of %v is that of the next row", id)
		}
	})
}

func TestDecided(t *testing.T) {
	t.Parallel()
	server := func(n uint16) error { return &mysql.MySQLError{Number: n} }
	for _, tc := range []struct {
		err       error
		want      Outcome
		permanent bool
	}{
		{nil, Acknowledged, false},
		{driver.ErrBadConn, Failed, false},
		{mysql.ErrInvalidConn, Unknown, false},
		{errors.New("unexpected EOF"), Unknown, false},
		{context.DeadlineExceeded, Unknown, false},
		{fmt.Errorf("exec: %w", server(1290)), Failed, false},
		{server(1213), Failed, false},
		{server(1197), Failed, false},
		{server(1146), Failed, true},
		{server(1062), Failed, true},
		// Shutdown, interrupted, and an error of the commit hook rule nothing out.
		{server(1053), Unknown, false},
		{server(1317), Unknown, false},
		{server(3100), Unknown, false},
		{server(1180), Unknown, false},
	} {
		got, err := decided(tc.err)
		if got != tc.want || permanent(err) != tc.permanent || (err == nil) != (tc.err == nil) {
			t.Errorf("decided(%v) = %v, %v; want %v, permanent %v", tc.err, got, err, tc.want, tc.permanent)
		}
	}
}

func TestGapMeter(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var g gapMeter
	g.ack(at(0))
	g.ack(at(50))
	g.ack(at(40)) // taken earlier, noted later
	g.ack(at(60))
	check := func(step string, now, wantMs int) {
		t.Helper()
		if got, want := g.read(at(now)), time.Duration(wantMs)*time.Millisecond; got != want {
			t.Errorf("%s: gap %v, want %v", step, got, want)
		}
	}
	check("steady", 65, 50)
	g.reset()
	check("after a reset", 70, 10)
	check("nothing comes", 900, 840)
	g.ack(at(1000))
	check("the interval that holds the reset counts whole", 1001, 940)
	g.ack(at(1010))
	check("a shorter one changes nothing", 1011, 940)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{},
		{Writers: 1},
		{DSNs: []string{"u:p@tcp(127.0.0.1:1)/"}},
		{Writers: 1, DSNs: []string{"no slash"}},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("New(%+v) succeeded", cfg)
		}
	}
}
