package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/frame"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/testkit/hostile"
)

// leading is a node that takes part in its cluster, and leads it. Nothing runs: every change that it is asked for is
// committed.
type leading struct {
	*apart
	node    *consensus.Runner
	ignored error // what becomes of a change that was committed
	asked   *cluster.Change
}

func (n leading) Raft() Raft                      { return n }
func (n leading) Committed() *consensus.Committed { return n.node.Committed() }
func (leading) Role() consensus.RoleState {
	return consensus.RoleState{Term: 7, Leader: 1, Leading: true}
}
func (leading) Barrier(context.Context) error                      { return errors.New("no majority") }
func (n leading) CheckState(context.Context, cluster.Change) error { return n.ignored }
func (n leading) ProposeState(_ context.Context, c cluster.Change) (consensus.StateOutcome, error) {
	*n.asked = c
	after, err := n.board.State().With(c)
	if err != nil {
		return consensus.StateOutcome{}, err
	}
	if n.ignored == nil {
		n.board.SetState(after)
	}
	return consensus.StateOutcome{Index: 9, StateChange: cluster.StateChange{State: after}, Ignored: n.ignored}, n.ignored
}

// serveLeading returns a server of such a node.
func serveLeading(t *testing.T) *Server {
	t.Helper()
	s, n := serve(t)
	s.Node = lead(t, n)
	return s
}

// lead has a node lead its cluster.
func lead(t *testing.T, n *apart) leading {
	t.Helper()
	log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	state := n.board.State()
	state.Version = 5
	n.board.SetState(state)
	node, err := consensus.New(consensus.Config{
		Self: 1, Members: state.Members, State: &cluster.StatePoint{State: state}, Heartbeat: 1e8, ElectionTimeout: 1e9, Log: log, Fresh: true, Logger: slog.New(slog.DiscardHandler),
		HasStage: log.HasStage, OnRole: func(consensus.RoleState) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.input = func(in role.Input) {
		is := status.RoleReplica
		if f, ok := in.(role.Fenced); ok && f.Reason != "" {
			is = status.RoleFenced
		}
		n.board.SetRole(is, "")
	}
	n.board.SetRole(status.RoleReplica, "")
	return leading{apart: n, node: node, asked: new(cluster.Change)}
}

// FuzzCall gives a node any request from another node: it is answered once, whatever it is, and the audit log has it
// in one line.
func FuzzCall(f *testing.F) {
	var wire bytes.Buffer
	add := func(name, by, args string) {
		wire.Reset()
		if err := control.WriteRequest(&wire, control.Request{Name: name, By: by, Args: json.RawMessage(args)}); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(wire.Bytes()))
	}
	for _, c := range [][2]string{
		{"node.set", `{"name":"b","weight":3,"site":"x"}`}, {"node.set", `{"name":"a","peer":"a:1","require_ack":true,"dry_run":true}`},
		{"cluster.set", `{"durability":"all","force":true}`}, {"cluster.set", `{"durability":"majority"}`},
		{"maintenance", `{"on":true,"for_ns":3600000000000,"reason":"x"}`}, {"maintenance", `{"on":false}`},
		{"fence", `{"node":"a","reason":"x"}`}, {"unfence", `{"node":"a"}`}, {"audit", `{"last":5}`}, {"history", `{"last":5,"node":"b"}`},
		{"audit.since", `{"seq":1}`}, {"history.since", `{"seq":1}`}, {"history.lines", `{"last":5}`},
		{"did-commit", `{"gtid":"11000000-0000-0000-0000-000000000001:7"}`}, {"did-commit", `{"session_token":"x"}`}, {"x", `{}`}, {"audit", `null`},
	} {
		add(c[0], "ann@db1", c[1])
	}
	for name := range New(Config{Records: history.New(vfs.NewMem(), ".", "a", slog.Default())}).all {
		add(name, "ann@db1", "{}")
	}
	add("audit", "", "{}")
	add("audit", "ann\n@db1", `{"last":5}`)
	qc := frame.Format{Magic: 0x4351, Version: 1}
	f.Fuzz(func(t *testing.T, sent []byte) {
		sent = hostile.Mend(sent, qc)
		s := serveLeading(t)
		told := hostile.Say(t, 64<<20+64*uint64(len(sent)), sent, func(conn *net.UnixConn) {
			s.ServeCall(context.Background(), 2, conn)
			_ = conn.Close()
		})
		r, err := control.ReadRequest(bytes.NewReader(sent))
		if err != nil {
			if len(told) > 0 {
				t.Fatalf("%v, and told %q", err, told)
			}
			return
		}
		in := bytes.NewReader(told)
		answer, err := control.ReadAnswer(in)
		if err != nil || in.Len() > 0 || answer.Node != "a" || (answer.Code == control.CodeOK) != (answer.Error == "") {
			t.Fatalf("%v to %+v: %+v, %v", told, r, answer, err)
		}
		sound := r.By != "" && !strings.ContainsFunc(r.By, func(c rune) bool { return c < ' ' })
		if answer.Code == control.CodeOK && (!sound || s.all[r.Name].Run == nil) {
			t.Errorf("%+v was carried out", r)
		}
		lines, err := s.Records.Audit.Newest(10)
		if err != nil || slices.ContainsFunc(lines, func(l cluster.AuditEntry) bool { return l.By != r.By || !sound }) {
			t.Errorf("%v: %+v", err, lines)
		}
	})
}
