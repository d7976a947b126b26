package join

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

// TestDecideEmpty: what a node with an empty directory does about the answers.
func TestDecideEmpty(t *testing.T) {
	refused := func(c ...transport.Code) (all []*transport.RejectedError) {
		for _, c := range c {
			all = append(all, &transport.RejectedError{Code: c, Text: "no", Order: transport.Order{StateVersion: 7}})
		}
		return all
	}
	for _, c := range []struct {
		name             string
		refused          []*transport.RejectedError
		welcomes, silent []string // welcomes are those that have begun
		empty            []string
		doubts           map[string]string
		in               Introduction
		added, knock     string
		role             status.Role // "" = it has heard enough
		says             string
	}{
		{name: "all have answered", empty: []string{"b", "c"}},
		{name: "one is silent", empty: []string{"b"}, silent: []string{"c"}, role: status.RoleForming, says: "node c has not answered"},
		{name: "another one answers in its place", refused: refused(transport.CodeReseed), silent: []string{"b"}, doubts: map[string]string{"b": "key"}, role: status.RoleJoining, says: "no"},
		{name: "and nobody knows better", empty: []string{"c"}, silent: []string{"b"}, doubts: map[string]string{"b": "key"}, role: status.RoleForming, says: "node b is not heard: key. "},
		{name: "nor a person", silent: []string{"b"}, doubts: map[string]string{"b": "key"}, in: Introduction{Bootstrap: true}, role: status.RoleForming, says: "not even with --bootstrap"},
		{name: "nor where none but an added one is named", silent: []string{"d"}, doubts: map[string]string{"d": "TLS"}, added: "d", in: Introduction{Alone: true, Bootstrap: true}, role: status.RoleForming, says: "TLS"},
		{name: "it joins, and another one answers", silent: []string{"b"}, doubts: map[string]string{"b": "key"}, in: Introduction{Joins: true}, role: status.RoleJoining, says: "yet: node b is not heard: key"},
		{name: "a person knows", silent: []string{"c"}, in: Introduction{Bootstrap: true}},
		{name: "nobody else is named", in: Introduction{Alone: true}, role: status.RoleForming, says: "--bootstrap, once"},
		{name: "nobody else is named, and a person knows", in: Introduction{Alone: true, Bootstrap: true}},
		{name: "an added one has not begun", empty: []string{"b", "d"}, added: "d"},
		{name: "only an added member is named", welcomes: []string{"d"}, in: Introduction{Alone: true}, added: "d", role: status.RoleForming, says: "--bootstrap, once"},
		{name: "an added member is silent", empty: []string{"b"}, silent: []string{"d"}, added: "d"},
		{name: "an added member knows", refused: refused(transport.CodeReseed), in: Introduction{Alone: true}, added: "d", role: status.RoleJoining, says: "no"},
		{name: "others have begun", welcomes: []string{"b"}, empty: []string{"c"}},
		{name: "who has data looks for it", empty: []string{"b"}, knock: "d", role: status.RoleForming, says: "node d, which has data"},
		{name: "who has data looks for it, and another one is not heard", empty: []string{"c"}, silent: []string{"b"}, doubts: map[string]string{"b": "key"}, knock: "d",
			role: status.RoleForming, says: "the cluster is not new; and node b is not heard: key. Mount the disk"},
		{name: "who has data looks for another one", refused: refused(transport.CodeEmpty), empty: []string{"c"}, role: status.RoleForming, says: "is empty, and no. Mount the disk"},
		{name: "who has begun knows better than another one", refused: refused(transport.CodeEmpty), welcomes: []string{"b"}},
		{name: "who has begun knows better", welcomes: []string{"b"}, empty: []string{"c"}, knock: "d"},
		{name: "also where a person knows better", knock: "d", in: Introduction{Alone: true, Bootstrap: true}, role: status.RoleForming, says: "node d, which has data"},
		{name: "it has lost its data", refused: refused(transport.CodeReseed), role: status.RoleJoining, says: "no"},
		{name: "it has, also where a person knows better", refused: refused(transport.CodeReseed), in: Introduction{Bootstrap: true}, role: status.RoleJoining, says: "no"},
		{name: "the cluster was recovered without it", refused: refused(transport.CodeRecovered), role: status.RoleJoining, says: "no"},
		{name: "it is to be rebuilt", refused: refused(transport.CodeRebuild), silent: []string{"c"}},
		{name: "it is refused", refused: refused(transport.CodePeer), silent: []string{"c"}},
		{name: "it joins, and is welcome", welcomes: []string{"b"}, silent: []string{"c"}, in: Introduction{Joins: true}},
		{name: "it joins, and nobody answers", silent: []string{"b", "c"}, in: Introduction{Joins: true}, role: status.RoleJoining, says: "nodes b, c have not answered"},
		{name: "it joins, and was here with another directory", refused: refused(transport.CodePeer), in: Introduction{Joins: true}, role: status.RoleJoining, says: "no"},
		{name: "it joins, and was not added so far", refused: refused(transport.CodeUnknown), in: Introduction{Joins: true}},
		{name: "one has not heard that it was added", refused: refused(transport.CodeUnknown, transport.CodeReseed), in: Introduction{Joins: true}, role: status.RoleJoining, says: "no"},
		{name: "it joins those that have not begun", refused: refused(transport.CodeEmpty), in: Introduction{Joins: true}, role: status.RoleJoining, says: "until they have begun"},
		{name: "one has not begun", refused: refused(transport.CodeEmpty, transport.CodeUnknown), in: Introduction{Joins: true}},
		{name: "it joins, and an added one welcomes it", welcomes: []string{"d"}, silent: []string{"b"}, added: "d", in: Introduction{Joins: true}},
		{name: "it joins, and an added one that is empty answers", empty: []string{"d"}, silent: []string{"b"}, in: Introduction{Joins: true}, added: "d",
			role: status.RoleJoining, says: "node b has not answered"},
	} {
		i := c.in
		i.Knocks = &Knocks{Self: "a", Added: []string{c.added}, by: c.knock}
		got := i.withoutAdded(transport.Introduction{Rejections: c.refused, Welcomes: c.welcomes, Empty: c.empty, Silent: c.silent, Doubts: c.doubts})
		over, role, reason := i.decide(got, 0)
		if over != (c.role == "") || !over && (role != c.role || !strings.Contains(reason, c.says)) {
			t.Errorf("%s: %t, %s, %q, want %s, %q", c.name, over, role, reason, c.role, c.says)
		}
	}
}

// empty is a node whose peers all welcome it. They are empty, too, until told is called.
type empty struct{ asked func(ctx context.Context) }

func (e empty) Introduce(ctx context.Context) transport.Introduction {
	e.asked(ctx)
	return transport.Introduction{Empty: []string{"b"}}
}
func (empty) Begun() bool               { return false }
func (empty) Waits(status.Role, string) {}

// TestListensBeforeItBegins: a member that the configuration does not name has the time to dial.
func TestListensBeforeItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(knocks *Knocks, asked func(ctx context.Context)) (took time.Duration, err error) {
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			defer end()
			began := time.Now()
			_, err = Introduction{Node: empty{asked}, Clock: clock.Machine{}, Logger: slog.New(slog.DiscardHandler), Knocks: knocks, Listen: 2 * time.Second}.Run(ctx)
			return time.Since(began), err
		}
		if took, err := run(&Knocks{Self: "a"}, func(context.Context) {}); err != nil || took != 2*time.Second {
			t.Errorf("nobody knocks: it begins after %v, %v", took, err)
		}
		var knocks Knocks
		began := time.Now()
		took, err := run(&knocks, func(context.Context) {
			if time.Since(began) >= time.Second {
				_ = knocks.CheckUnknown(transport.Identity{NodeName: "d", Instance: [16]byte{1}})
			}
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a member knocks: it begins after %v, %v", took, err)
		}
	})
}

// TestKnocks: a node with an empty directory itself is no sign that the cluster has lived.
func TestKnocks(t *testing.T) {
	k := &Knocks{Self: "a", Added: []string{"e"}}
	if err := k.CheckPeer(transport.Identity{NodeName: "b", Instance: [16]byte{1}}); err != nil || k.By() != "" {
		t.Errorf("an initial member: %v, kept %q", err, k.By())
	}
	for _, c := range []struct {
		id   transport.Identity
		want string
	}{
		{transport.Identity{NodeName: "e"}, ""},
		{transport.Identity{NodeName: "e", Instance: [16]byte{1}}, "e"},
		{transport.Identity{NodeName: "b"}, "e"},
	} {
		err := k.CheckPeer(c.id)
		if r, ok := errors.AsType[*transport.RejectedError](err); !ok || r.Code != transport.CodeEmpty || k.By() != c.want {
			t.Errorf("%s: %v, kept %q, want %q", c.id.NodeName, err, k.By(), c.want)
		}
	}
}

// several are initial members, whose directories are all empty.
type several struct {
	self  string
	doors map[string]*Knocks
	asked func(ctx context.Context)
}

func (several) Begun() bool               { return false }
func (several) Waits(status.Role, string) {}

// Introduce implements Newcomer: the nodes in doors answer.
func (s several) Introduce(ctx context.Context) (got transport.Introduction) {
	s.asked(ctx)
	for _, name := range []string{"a", "b", "c"} {
		if k := s.doors[name]; k == nil {
			got.Silent = append(got.Silent, name)
		} else if name != s.self {
			got.Add(name, transport.Identity{NodeName: name}, k.CheckPeer(transport.Identity{NodeName: s.self}))
		}
	}
	return got
}

// TestKnockAtAnotherNode: a cluster of a, b, c has grown, and their disks are not mounted. A member that no
// configuration names reaches only a, 5 s after b has begun to ask, and within the time in which it must have dialled
// a.
func TestKnockAtAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const listen = 2 * time.Second
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		began := time.Now()
		doors := map[string]*Knocks{"b": {Self: "b"}, "c": {Self: "c"}}
		asked := func(context.Context) {
			if since := time.Since(began); since >= 4*time.Second && doors["a"] == nil {
				doors["a"] = &Knocks{Self: "a"}
			} else if since >= 4*time.Second+listen {
				_ = doors["a"].CheckUnknown(transport.Identity{NodeName: "d", Instance: [16]byte{1}})
			}
		}
		i := Introduction{Node: several{"b", doors, asked}, Clock: clock.Machine{}, Logger: slog.New(slog.DiscardHandler), Knocks: doors["b"], Listen: listen}
		if _, err := i.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("b begins %v after a has started: %v", time.Since(began)-4*time.Second, err)
		}
	})
}

// TestAddedAnswers: a node that was added, and accepts a node with an empty directory, does not refuse it.
func TestAddedAnswers(t *testing.T) {
	e := transport.Peer{ID: 5, Name: "e"}
	d := transport.Door{
		Self: transport.Identity{Node: 1, NodeName: "a"}, Checker: &Knocks{Self: "a", Added: []string{"e"}},
		Peer: func(cluster.NodeID) (transport.Peer, bool) { return e, true },
	}
	for _, instance := range [][16]byte{{}, {1}} {
		if r := d.Accept(transport.Identity{Node: 5, NodeName: "e", Instance: instance}, e); r != nil {
			t.Errorf("instance %x: %v", instance, r)
		}
	}
}

// TestNewestWordCounts: what a peer has said counts while it is silent. It counts no more once the peer says
// something else, or lets the node in.
func TestNewestWordCounts(t *testing.T) {
	words := map[string]*transport.RejectedError{}
	says := func(by string, c transport.Code) transport.Introduction {
		return transport.Introduction{Rejections: []*transport.RejectedError{{By: by, Code: c}}}
	}
	for _, c := range []struct {
		got  transport.Introduction
		want []transport.Code
	}{
		{says("b", transport.CodeRecovered), []transport.Code{transport.CodeRecovered}},
		{says("c", transport.CodeReseed), []transport.Code{transport.CodeRecovered, transport.CodeReseed}},              // b is silent
		{transport.Introduction{Empty: []string{"b"}}, []transport.Code{transport.CodeRecovered, transport.CodeReseed}}, // b has lost its disk, and forgotten
		{says("b", transport.CodeRebuild), []transport.Code{transport.CodeRebuild, transport.CodeReseed}},
		{transport.Introduction{Welcomes: []string{"b"}, Silent: []string{"c"}}, []transport.Code{transport.CodeReseed}},
		{says("c", transport.CodePeer), []transport.Code{transport.CodePeer}},
		{transport.Introduction{Silent: []string{"b", "c"}}, nil},
	} {
		var got []transport.Code
		for _, r := range remember(words, c.got) {
			got = append(got, r.Code)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("after %+v: %v, want %v", c.got, got, c.want)
		}
	}
}
