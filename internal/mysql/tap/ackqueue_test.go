package tap

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/sys/invariant"
)

// The rules of acknowledgement as scripts. Each line of the input is one call:
//
//	received N [FILE OFFSET]   a transaction (or, without position, a rotation)
//	                           is in entry N
//	skipped FILE OFFSET        heartbeat beyond the last event
//	handout N                  entry N goes to propose
//	commit N                   Committed(N)
//	close
//
// The output is what may be sent after each.
func TestAckQueueScripts(t *testing.T) {
	datadriven.RunTest(t, "testdata/ackqueue", func(t *testing.T, d *datadriven.TestData) string {
		var q ackQueue
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			fmt.Fprintf(&out, "%s: %s\n", strings.TrimSpace(line), ackQueueStep(t, &q, line))
		}
		return out.String()
	})
}

func ackQueueStep(t *testing.T, q *ackQueue, line string) (result string) {
	defer func() {
		if v, ok := recover().(invariant.Violation); ok {
			result = v.Error()
		}
	}()
	fields := append(strings.Fields(line), "", "", "")
	number := func(s string) (n uint64) {
		if _, err := fmt.Sscan(s, &n); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return n
	}
	switch fields[0] {
	case "received":
		var p Position
		if fields[2] != "" {
			p = Position{fields[2], number(fields[3])}
		}
		q.received(number(fields[1]), p)
	case "skipped":
		q.skipped(Position{fields[1], number(fields[2])})
	case "handout":
		q.handOut(number(fields[1]))
	case "commit":
		q.commit(number(fields[1]))
	case "close":
		q.close()
	default:
		t.Fatalf("unknown call %q", line)
	}
	if p, ok := q.take(); ok {
		return fmt.Sprintf("ACK %v", p)
	}
	return "-"
}

// In any order of events, a released position is never behind a transaction that is not
// committed, and never goes back. When all is committed, the last position was released.
func TestAckQueueNeverReleasesUncommitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q ackQueue
		// safe[n] is the last position before the first byte of entry n+1.
		var offset, received, handedOut, committed, released uint64
		safe := []uint64{0}
		check := func() {
			p, ok := q.take()
			if !ok {
				return
			}
			if p.Offset <= released || p.Offset > safe[committed] {
				t.Fatalf("released %d after %d; entries up to %d are committed, safe is %d",
					p.Offset, released, committed, safe[committed])
			}
			released = p.Offset
		}
		t.Repeat(map[string]func(*rapid.T){
			"receive": func(t *rapid.T) {
				offset += 10
				// Grow the entry that was not handed out, or begin another.
				if received == handedOut || rapid.Bool().Draw(t, "another") {
					received++
					safe = append(safe, 0)
				}
				safe[received] = offset
				q.received(received, Position{"f", offset})
			},
			"skip": func(*rapid.T) {
				offset += 10
				safe[received] = offset
				q.skipped(Position{"f", offset})
			},
			"handout": func(t *rapid.T) {
				if handedOut == received {
					t.Skip()
				}
				handedOut++
				q.handOut(handedOut)
			},
			"commit": func(t *rapid.T) {
				n := rapid.Uint64Range(0, handedOut).Draw(t, "number")
				committed = max(committed, n)
				q.commit(n)
			},
			"": func(*rapid.T) { check() },
		})
		for handedOut < received {
			handedOut++
			q.handOut(handedOut)
		}
		q.commit(received)
		committed = received
		check()
		if released != offset || q.outstanding() != 0 {
			t.Fatalf("everything is committed up to %d, released is %d", offset, released)
		}
	})
}

func TestCommitOfUnknownNumberPanics(t *testing.T) {
	m := New(Config{})
	defer func() {
		v, ok := recover().(invariant.Violation)
		if !ok || v.Name != "I2" {
			t.Fatalf("recovered %v", v)
		}
	}()
	m.Committed(1)
}
