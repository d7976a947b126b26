package quorumloss

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

// apart is a recovery on c, apart from a and b.
var apart = cluster.Recovery{Version: 1_000_000, Cluster: "orders", Node: "c", At: time.Unix(1000, 0).UTC()}

// TestRefusers: a node that was recovered by mistake learns which nodes refuse it. A node that obeys it, or whose
// host has another node now, is not among them.
func TestRefusers(t *testing.T) {
	elsewhere := apart
	elsewhere.Node = "b"
	answer := func(by string, c transport.Code, r *cluster.Recovery) *transport.RejectedError {
		return &transport.RejectedError{By: by, Code: c, Order: transport.Order{Recovery: r}}
	}
	got := refusersOf(apart, []*transport.RejectedError{
		answer("x", transport.CodePeer, nil), answer("obeys", transport.CodeRecovered, &apart),
		answer("other", transport.CodeRecovered, &elsewhere), answer("moved", transport.CodeTarget, nil),
		answer("gone", transport.CodeRemoved, nil), answer("old", transport.CodeVersion, nil),
		answer("has never heard of a node that was added since", transport.CodeUnknown, nil),
	})
	if d := cmp.Diff([]string{"gone", "other", "x"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, c := range []struct{ before, now, want []string }{
		{nil, []string{"b"}, nil},
		{[]string{"b"}, nil, nil},
		{[]string{"b"}, []string{"b"}, []string{"b"}},
		{[]string{"b", "c"}, []string{"b"}, []string{"b"}}, // c has died
		{[]string{"b"}, []string{"b", "c"}, []string{"b"}}, // c has just started
		{[]string{"b"}, []string{"c"}, nil},
	} {
		if d := cmp.Diff(c.want, refuseStill(c.before, c.now), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("first %v, then %v (-want +got):\n%s", c.before, c.now, d)
		}
	}
}

// TestOutside: a node that has obeyed a recovery rejects all, and each learns of that recovery.
func TestOutside(t *testing.T) {
	for _, id := range []transport.Identity{{Node: 2, NodeName: "b"}, {Node: 9, NodeName: "x", Instance: [16]byte{9}}} {
		want := &transport.RejectedError{Code: transport.CodeRecovered, Text: apart.Sentence(id.NodeName), Order: transport.Order{Recovery: &apart}}
		if d := cmp.Diff(error(want), Outside{By: &apart}.CheckPeer(id)); d != "" {
			t.Errorf("node %s (-want +got):\n%s", id.NodeName, d)
		}
	}
}

// restless is a clock whose waits end before their time, as they may.
type restless struct{ clock.Machine }

// Wait implements clock.Clock.
func (r restless) Wait(ctx context.Context, _ time.Duration, changed <-chan struct{}) error {
	return r.Machine.Wait(ctx, time.Millisecond, changed)
}

// slowNode is a node whose peers answer after a second.
type slowNode struct{ Node }

func (slowNode) AsSelf() membership.Self { return membership.Self{ID: 1} }

// AskWord implements Node.
func (slowNode) AskWord(context.Context, cluster.NodeID, cluster.Recovery) (recovery.Word, error) {
	time.Sleep(time.Second)
	return recovery.Word{}, nil
}

// three is a table of three members.
type three struct{ Table }

func (three) Members() []cluster.Member {
	return []cluster.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 4, Name: "d"}}
}

// TestWordsOfOthers: every word counts, also where a wait for the answers ends before they are there.
func TestWordsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Node: slowNode{}, Board: three{}, ElectionTimeout: 10 * time.Second, Clock: restless{}, Logger: slog.New(slog.DiscardHandler)})
		if words := s.wordsOfOthers(apart); len(words) != 2 {
			t.Errorf("%d words of 2 nodes", len(words))
		}
	})
}

// leaver is a blank node that counts how often it is to leave.
type leaver struct {
	Node
	left int
}

func (*leaver) AsSelf() membership.Self { return membership.Self{ID: 1, Blank: true} }

// Leave implements Node.
func (l *leaver) Leave(membership.Departure) { l.left++ }

// blind is the table of a node that joins, and knows nothing of the cluster, or something.
type blind struct {
	three
	is bool
}

func (b blind) JoinsBlind() bool { return b.is }

// TestBlindJoinerWeighsOrders: a node that joins and knows no state of the cluster does not obey a single peer that
// orders its rebuild. It obeys what join.Joiner has weighed. A node that knows a state obeys.
func TestBlindJoinerWeighsOrders(t *testing.T) {
	order := &transport.RejectedError{Code: transport.CodeRebuild, Order: transport.Order{StateVersion: 7, Instance: "new"}}
	for _, c := range []struct {
		blind, dialled bool
		left           int
	}{{true, true, 0}, {true, false, 1}, {false, true, 1}} {
		n := &leaver{}
		s := New(Config{Node: n, Board: blind{is: c.blind}, Logger: slog.New(slog.DiscardHandler)})
		if c.dialled {
			s.RefusedDial("b", order)
		} else {
			s.Refused("the cluster", order)
		}
		if n.left != c.left {
			t.Errorf("blind %t, by one peer %t: it begins again %d times, want %d", c.blind, c.dialled, n.left, c.left)
		}
	}
}

// fullDisk is a data directory that takes no file until there is room.
type fullDisk struct {
	room  bool
	noted []cluster.Recovery
}

func (*fullDisk) Refused() ([]cluster.Recovery, error) { return nil, nil }

// WriteRefused implements Dir.
func (d *fullDisk) WriteRefused(refused []cluster.Recovery) error {
	if !d.room {
		return errors.New("no space left on device")
	}
	d.noted = refused
	return nil
}

// led is a table of a node that had a leader so long ago.
type led struct {
	three
	since time.Duration
}

func (l *led) SinceLeader() time.Duration          { return l.since }
func (*led) SetTrouble(string, string) (news bool) { return false }

// follower is a node that knows no recovery. Its peers say nothing.
type follower struct {
	Node
	left int
}

func (*follower) AsSelf() membership.Self { return membership.Self{ID: 1} }

// Leave implements Node.
func (f *follower) Leave(membership.Departure) { f.left++ }

// AskWord implements Node.
func (*follower) AskWord(context.Context, cluster.NodeID, cluster.Recovery) (recovery.Word, error) {
	return recovery.Word{}, nil
}

// TestRefusalOnFullDisk: a refusal that cannot be noted counts until the node restarts. It does not claim to be noted,
// and is noted as soon as the disk takes it.
func TestRefusalOnFullDisk(t *testing.T) {
	n, table, disk := &follower{}, &led{}, &fullDisk{}
	s := New(Config{Node: n, Board: table, Dir: disk, ElectionTimeout: time.Second, Clock: clock.Machine{}, Logger: slog.New(slog.DiscardHandler)})
	s.Hear("c", apart)
	for _, table.since = range []time.Duration{1, recovery.LedWithin, recovery.NeverLed} {
		s.Hear("c", apart)
		if ok, _ := s.Confirm(apart); ok || n.left > 0 || !s.TwoSides() {
			t.Fatalf("a leader %v ago: it obeys %t, leaves %d times, two sides %t", table.since, ok, n.left, s.TwoSides())
		}
		if w := s.Word(apart); w != (recovery.Word{Led: true}) || len(disk.noted) > 0 {
			t.Errorf("a leader %v ago: it says %+v, noted %v", table.since, w, disk.noted)
		}
	}
	disk.room = true
	s.Hear("c", apart)
	if w := s.Word(apart); !w.Refuses || len(disk.noted) != 1 {
		t.Errorf("with room: it says %+v, noted %v", w, disk.noted)
	}
}
