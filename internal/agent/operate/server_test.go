package operate

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/role"
)

// apart is node a, which takes no part in its cluster of a and b.
type apart struct {
	board *board.Board
	peers *transport.Transport
	input func(role.Input)
}

func (n apart) Raft() Raft                                       { return nil }
func (n apart) Peers() *transport.Transport                      { return n.peers }
func (n apart) Log() Log                                         { return nil }
func (n apart) Input(in role.Input)                              { n.input(in) }
func (n apart) SessionGone(context.Context, uint64, uint32) bool { return false }
func (n apart) SeedNotes(context.Context, cluster.MembershipChange) []string {
	return []string{"it begins without a vote"}
}
func (n apart) Sight() status.Sight {
	return status.Sight{State: n.board.State(), Nodes: n.board.Nodes()}
}

func serve(t *testing.T) (*Server, *apart) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	members := []cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull, Weight: 5}, {ID: 2, Name: "b", Kind: cluster.KindFull, Weight: 5}}
	n := &apart{peers: transport.New(transport.Config{Logger: quiet})}
	n.board = board.New(board.Config{
		Self:  status.Node{ID: 1, Name: "a", StateVersion: new(uint64), StateFormat: cluster.StateFormat},
		State: cluster.NewState(members), Known: membership.New(membership.Config{}), Now: time.Now,
	})
	disk := vfs.NewMem()
	s := New(Config{
		Self: members[0], Version: "v1", Node: n, Board: n.board, Logger: quiet,
		Records: history.New(disk, ".", "a", quiet), Dir: datadir.New(disk, "."),
	})
	s.Records.Open()
	return s, n
}

// TestAudited: a request that did something, was refused or was called off gets a line. A request that changed
// nothing, or whose change was committed, gets none here.
func TestAudited(t *testing.T) {
	s, _ := serve(t)
	h, r := Handler{Audited: true}, control.Request{Name: "switchover", By: "ann@db1", Args: []byte(`{"to":"b"}`)}
	s.audited(h, r, Done{What: "switchover from a to b"}, nil)
	s.audited(h, r, Done{What: "switchover from a to b"}, errors.New("called off"))
	s.audited(h, r, Done{}, control.Errorf(control.CodeUncertain, "it has not ended"))
	s.audited(h, r, Done{ReadOnly: true}, errors.New("only looked"))
	s.audited(h, r, Done{Index: 7}, nil)
	s.audited(Handler{}, r, Done{}, nil)
	lines, err := s.Records.Audit.Newest(10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		got = append(got, strings.Join([]string{l.By, l.What, l.Result}, " | "))
	}
	want := []string{
		"ann@db1 | switchover from a to b | done",
		"ann@db1 | switchover from a to b | not done: called off",
		`ann@db1 | switchover to b | not known: it has not ended`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("audit log (-want +got):\n%s", d)
	}
}

func TestServeRefuses(t *testing.T) {
	s, _ := serve(t)
	for want, r := range map[string]control.Request{
		`node a (quorate v1) knows no request "x"`: {Name: "x", By: "ann@db1"},
		"the requester must be named":              {Name: "audit"},
		"the requester must be named, in one line": {Name: "audit", By: "ann\n@db1"},
		"takes no part in the cluster":             {Name: "audit", By: "ann@db1"},
	} {
		if answer := s.Serve(t.Context(), r); answer.Code == control.CodeOK || !strings.Contains(answer.Error, want) {
			t.Errorf("%+v: %+v, want %q", r, answer, want)
		}
	}
}

// TestFromAfar: a request that changes something, and that no agent passes on, is taken from this host only.
func TestFromAfar(t *testing.T) {
	s := serveLeading(t)
	done := func(context.Context, control.Request) (Done, error) { return Done{}, nil }
	s.Handle(map[string]Handler{"here": {Audited: true, Run: done}, "leader": {Leader: true, Audited: true, Run: done},
		"node": {OnNode: true, Audited: true, Run: done}, "question": {Run: done}})
	for name, refused := range map[string]bool{"here": true, "leader": false, "node": false, "question": false} {
		r := control.Request{Name: name, By: "ann@db1", Args: []byte(`{"node":"a"}`)}
		if answer := s.Serve(t.Context(), r); answer.Code != control.CodeOK {
			t.Errorf("%s, on this host: %+v", name, answer)
		}
		r.From = "b"
		if answer := s.Serve(t.Context(), r); (answer.Code == control.CodeInvalid) != refused {
			t.Errorf("%s, of node b: %+v", name, answer)
		}
	}
	lines, err := s.Records.Audit.Newest(10)
	if n := len(lines); err != nil || n != 6 {
		t.Errorf("%d lines of the audit log, want 6: one for each order; %v", n, err)
	}
}

// TestFence: the fence is on disk before the role machine hears of it, and is removed the same way. A primary is
// fenced only by force.
func TestFence(t *testing.T) {
	s, n := serve(t)
	var heard []role.Input
	n.input = func(in role.Input) {
		heard = append(heard, in)
		f, err := s.Dir.Fence()
		if fenced := in.(role.Fenced).Reason != ""; err != nil || fenced != (f != nil) {
			t.Errorf("the role machine hears %+v, and on disk is %+v, %v", in, f, err)
		}
		role := status.RoleReplica
		if f != nil {
			role = status.RoleFenced
		}
		n.board.SetRole(role, "")
	}
	ask := func(name, args string) (Done, error) {
		return s.all[name].Run(t.Context(), control.Request{Name: name, By: "ann@db1", Args: []byte(args)})
	}
	n.board.SetRole(status.RolePrimary, "")
	if _, err := ask("fence", `{"node":"a"}`); err == nil || !strings.Contains(err.Error(), "move it first") {
		t.Errorf("a primary: %v", err)
	}
	for _, c := range []struct{ name, args string }{
		{"fence", `{"node":"a","dry_run":true,"force":true}`},
		{"fence", `{"node":"a","force":true}`}, {"fence", `{"node":"a"}`},
		{"unfence", `{"node":"a","dry_run":true}`}, {"unfence", `{"node":"a"}`}, {"unfence", `{"node":"a"}`},
	} {
		if _, err := ask(c.name, c.args); err != nil {
			t.Errorf("%s %s: %v", c.name, c.args, err)
		}
	}
	if len(heard) != 2 {
		t.Errorf("the role machine heard %+v", heard)
	}
	for r, want := range map[status.Role]string{status.RoleErrant: "its mysqld is errant, until it is rebuilt", status.RoleFenced: "was fenced by quorate itself"} {
		n.board.SetRole(r, "its own transactions")
		if _, err := ask("unfence", `{"node":"a"}`); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", r, err)
		}
	}
}
