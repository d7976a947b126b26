package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/frame"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/testkit/hostile"
)

// requestedFor is the time that a request has. A request that would wait longer is told to end.
const requestedFor = 20 * time.Millisecond

// leads is a node that says that it leads. Its changes reach no majority, and it has no role machine.
type leads struct{ operated }

func (n leads) Raft() operate.Raft              { return n }
func (n leads) Input(role.Input)                {}
func (n leads) Committed() *consensus.Committed { return n.Agent.Raft.Committed() }
func (n leads) Role() consensus.RoleState {
	return consensus.RoleState{Term: 7, Leader: n.self.ID, Leading: true}
}
func (leads) Barrier(context.Context) error                    { return errors.New("no majority") }
func (leads) CheckState(context.Context, cluster.Change) error { return nil }
func (leads) ProposeState(context.Context, cluster.Change) (consensus.StateOutcome, error) {
	return consensus.StateOutcome{}, errors.New("no majority")
}

// asked returns a node that takes requests, and a member that it knows. Nothing runs on the node.
func asked(t testing.TB) (*Agent, cluster.Member) {
	t.Helper()
	cfg := loneConfig(t)
	away := cfg.Members[0].Peer // nobody answers there
	cfg.Members = append(cfg.Members, config.Member{Name: "b", Peer: away, Kind: cluster.KindFull})
	cfg.Members[0].Peer = cfg.Feed.Listen
	cfg.Site = config.Site{Name: "west", Nodes: []string{away}, User: "site", PasswordFile: filepath.Join(t.TempDir(), "password")}
	if err := os.WriteFile(cfg.Site.PasswordFile, []byte("of the site"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := openWith(t, cfg)
	a.requests.Node = leads{operated{a}}
	return a, cfg.ClusterMembers()[1]
}

// FuzzRequests gives a node any request from a member, of all that agents serve. The request is answered once and
// soon, whatever it is. An order that a member may not give is not carried out. FuzzCall has the requests that are
// committed.
func FuzzRequests(f *testing.F) {
	var wire bytes.Buffer
	for args, names := range map[string]string{
		`{}`: recoverRequest + " " + quorumloss.WordRequest + " " + seedPlanRequest + " " + seedDataRequest + " " + stateRequest +
			" secrets.rotate variables.list follow.stop follow.show site.show site.forget site.look site.know site.fixed unknown",
		`{"retention_size":1,"up_to":1,"dry_run":true}`: "log.purge",
		`{"index":9223372036854775807}`:                 cluster.ArchiveReached + " variables.apply",
		`{"node":"a","last":5}`:                         "sessions",
		`{"node":"a"}`:                                  "mysqld.installed restart fence unfence",
		`{"node":"a","dry_run":true,"max_pause_ns":1}`:  "restart",
		`{"to":"b","dry_run":true,"max_pause_ns":1000000000,"wait_ns":1000000000}`:     "switchover",
		`{"index":7,"term":7,"within_ns":9223372036854775807}`:                         "switchover.target",
		`{"set":{"max_connections":"10"},"dry_run":true}`:                              "variables.set variables.try",
		`{"source":"127.0.0.1:1","user":"u","password_file":"/p","check":true}`:        "follow.start",
		`{"source_closed":true,"verify":"rows","within_ns":10000000000}`:               "cutover",
		`{"check":true,"force":true}`:                                                  "site.follow",
		`{"within_ns":10000000000}`:                                                    "site.switch",
		`{"yes":true,"force":true}`:                                                    "site.promote",
		`{"site":"west","ballot":{"number":3,"site":"west"},"token":"t"}`:              "site.yield site.resume",
		`{"site":"west","ballot":{"number":3,"site":"west"},"token":"t","fence":true}`: "site.yield",
		`{"at":"2026-01-02T12:00:00Z","by":"b","node":"b","members":["b"]}`:            quorumloss.WordRequest,
	} {
		for name := range strings.FieldsSeq(names) {
			wire.Reset()
			if err := control.WriteRequest(&wire, control.Request{Name: name, By: "ann@db1", Args: json.RawMessage(args)}); err != nil {
				f.Fatal(err)
			}
			f.Add(bytes.Clone(wire.Bytes()))
		}
	}
	a, member := asked(f)
	secrets, err := os.ReadFile(a.data.Join(secretsFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		sent = hostile.Mend(sent, frame.Format{Magic: 0x4351, Version: 1})
		ctx, cancel := context.WithTimeout(t.Context(), requestedFor)
		defer cancel()
		a.ctx = ctx
		defer func() { _ = os.Remove(a.data.Join(datadir.Fence)) }() // each input finds the same node
		told := hostile.Say(t, 64<<20+64*uint64(len(sent)), sent, func(conn *net.UnixConn) {
			a.requests.ServeCall(ctx, member.ID, conn)
			_ = conn.Close()
		})
		if after, err := os.ReadFile(a.data.Join(secretsFile)); err != nil || !bytes.Equal(after, secrets) {
			t.Errorf("a member has changed this node's secrets (%v)", err)
		}
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
		if answer.Code == control.CodeOK && slices.Contains([]string{"log.purge", "secrets.rotate", cluster.ArchiveReached, cluster.FullNewest, "unknown"}, r.Name) {
			t.Errorf("%+v was carried out", r)
		}
	})
}
