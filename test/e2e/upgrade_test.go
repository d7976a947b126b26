package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// previousEdits turn this agent into one that speaks protocol version 1: no calls between agents, no cluster
// state in a status, in the log, or in a data directory, no promise in an answer to a heartbeat, no commit
// notices.
func previousEdits() map[string][][2]string {
	return map[string][][2]string{
		"internal/raft/transport/version.go": {{"versionNewest = versionRead", "versionNewest = versionFirst"}},
		"internal/raft/entry/entry.go":       {{"h.Kind > KindState {", "h.Kind > KindStaged {"}},
		"internal/agent/datadir/identity.go": {{"formatMax   = FormatState", "formatMax   = FormatFirst"}},
		"internal/agent/board/board.go":      {{"\tb.self.StateVersion = new(s.Version)\n", ""}},
		"internal/agent/build.go": {
			{"StateVersion: new(uint64), ", ""},
			{"StateFormat: cluster.StateFormat, ", ""},
			{"\t\tHeartbeat: a.cfg.Raft.Heartbeat, ElectionTimeout: a.cfg.Raft.ElectionTimeout,\n", ""},
		},
		// Its nodes promise nothing, and its leaders believe that all settings are theirs.
		"internal/agent/member/gossip.go": {{"in.NoLease = status.NoLease(table.Members(), nodes)", "in.NoLease = \"\""}},
		"internal/raft/consensus/lease.go": {
			{"case m.GetType() == pb.MsgHeartbeat && c == raftContextBytes:", "case false && c == raftContextBytes:"},
			{"case m.GetType() == pb.MsgHeartbeatResp && c == roundBytes:", "case false:"},
		},
		// They know no commit notices: they answer those of others, and send none.
		"internal/raft/consensus/notices.go": {
			{"bytes.Equal(m.GetContext(), noticeContext[:])", "bytes.Equal(m.GetContext(), noticeContext[:]) && false"},
			{"if m.GetType() != pb.MsgApp || len(m.GetEntries()) > 0 ||", "if true ||"},
			{"if !n.stale || !g.role.Leading {", "if true {"},
		},
		"internal/raft/consensus/group.go": {{"g.extendLease() // a single voter gets no answers from others", `for i, r := range g.lease.rounds {
		if r.seq == seq && g.role.Leading && g.transferredTerm != g.role.Term {
			g.lease.until = r.sentAt.add(g.promise())
			g.lease.rounds = g.lease.rounds[i+1:]
			break
		}
	}`}},
	}
}

// buildPrevious builds that agent, from this tree with those texts replaced.
func buildPrevious(t *testing.T) string {
	t.Helper()
	return buildEdited(t, previousEdits())
}

// buildEdited builds an agent of this tree with some texts replaced.
func buildEdited(t *testing.T, all map[string][][2]string) string {
	t.Helper()
	const root = "../.."
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for file, edits := range all {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, e := range edits {
			if strings.Count(text, e[0]) != 1 {
				t.Fatalf("%s has this text %d times, not once: %s", file, strings.Count(text, e[0]), e[0])
			}
			text = strings.Replace(text, e[0], e[1], 1)
		}
		real, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		replace[real] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(replace[real], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "quorate")
	cmd := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"),
		"-ldflags", "-X main.version=v0.0.1-previous", "-o", program, "./cmd/quorate")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the previous version: %v\n%s", err, out)
	}
	return program
}

// TestUpgrade rolls a cluster under load from this version to the previous protocol
// version and back, node by node. At the end it makes a change that only this version knows:
// then there is no way back, and the previous version says so.
func TestUpgrade(t *testing.T) {
	beside(t)
	previous := buildPrevious(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, PlainPeers: true})
	const unknown = "upgrade it first"
	f.scenario(t, "Back", func(t *testing.T, ctx context.Context) {
		f.roll(t, ctx, previous, []int{0, 1, 2}, func(done int) {
			if done < f.Len() { // a node of this version is left to ask
				f.refused(t, ctx, f.Len()-1, []int{1, 2, 3, 4}, unknown, "node", "set", f.Name(0), "--weight", "6")
			}
		})
		f.check(t, ctx)
	})
	f.scenario(t, "Forth", func(t *testing.T, ctx context.Context) {
		f.roll(t, ctx, os.Getenv(binaryVariable), []int{0, 1, 2}, func(done int) {
			if done < f.Len() {
				f.refused(t, ctx, 0, []int{1, 2, 3, 4}, unknown, "node", "set", f.Name(0), "--weight", "6")
			}
		})
		f.check(t, ctx)
	})
	f.scenario(t, "NoWayBack", func(t *testing.T, ctx context.Context) {
		f.must(t, ctx, 0, "node", "set", f.Name(0), "--weight", "6")
		if err := f.WaitNode(ctx, 2, "keeps the change", func(n status.Node) bool { return n.StateKept > 0 }); err != nil {
			t.Fatal(err)
		}
		if err := f.Terminate(ctx, 2); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(ctx, previous, "run", "--config", f.ConfigPath(2)).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "has format 2, this quorate reads up to 1: install the newer quorate again") {
			t.Errorf("the previous version over a newer log: %v\n%s", err, out)
		}
		f.heal(t, ctx)
		f.check(t, ctx)
	})
}

// restartAs stops an agent in order, and starts another program in its place.
func (f *fixture) restartAs(t *testing.T, ctx context.Context, i int, program string) {
	t.Helper()
	if err := f.Terminate(ctx, i); err != nil {
		t.Fatal(err)
	}
	f.SetBinary(i, program)
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
}

// TestOlderComesBack: a node was away while the others made a change that its older quorate does not know. It refuses the
// change, says what to do, and takes no part. Once it is upgraded it has the whole state.
func TestOlderComesBack(t *testing.T) {
	beside(t)
	older := buildEdited(t, map[string][][2]string{"internal/cluster/repair.go": {{"const StateFormat = 9", "const StateFormat = 5"}}})
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "OlderComesBack", func(t *testing.T, ctx context.Context) {
		f.heal(t, ctx)
		away := 2
		kept := func() bool {
			t.Helper()
			b, err := os.ReadFile(filepath.Join(f.DataDir(away), "cluster.json"))
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(b), `"events_off": true`)
		}
		if err := f.Terminate(ctx, away); err != nil {
			t.Fatal(err)
		}
		primary, err := f.WaitPrimary(ctx, away)
		if err != nil {
			t.Fatal(err)
		}
		f.must(t, ctx, primary, "cluster", "set", "--events", "off")
		f.SetBinary(away, older)
		if err := f.Start(ctx, away); err != nil {
			t.Fatal(err)
		}
		f.awaitSaid(t, ctx, primary, away, "a newer quorate wrote a cluster state of format 6, this one knows up to 5: upgrade quorate on this node")
		load := f.start(t, 4)
		load.awaitAcks(t, ctx, 100)
		load.stop(t)
		if kept() {
			t.Error("the older quorate has taken the state")
		}
		f.restartAs(t, ctx, away, os.Getenv(binaryVariable))
		f.heal(t, ctx)
		if !kept() {
			t.Error("the node has not got the whole state after its upgrade")
		}
		f.must(t, ctx, primary, "cluster", "set", "--events", "on")
		f.restartAs(t, ctx, away, older) // it may go back again, as long as its files have nothing that it does not know
		f.heal(t, ctx)
		f.check(t, ctx)
	})
}

// TestUpgradeLogger rolls two full nodes and a logger, in the order that the documentation
// asks for: there is always a node that may open. In another order the cluster says which node must be
// upgraded, and goes on as soon as it is.
func TestUpgradeLogger(t *testing.T) {
	beside(t)
	previous, program := buildPrevious(t), os.Getenv(binaryVariable)
	f := newCluster(t, devcluster.Options{Nodes: 3, Loggers: 1, PlainPeers: true})
	for i := range f.Len() {
		f.SetBinary(i, previous)
	}
	ctx := scenarioContext(t)
	f.heal(t, ctx)
	f.createTable(t, ctx)
	logger := f.Len() - 1
	f.scenario(t, "Forth", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		f.roll(t, ctx, program, []int{logger, 1 - primary, primary}, func(int) {})
		f.check(t, ctx)
	})
	f.scenario(t, "Back", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		f.roll(t, ctx, previous, []int{1 - primary, primary, logger}, func(int) {})
		f.check(t, ctx)
	})
	f.scenario(t, "LoggerLast", f.loggerLast)
}

// loggerLast upgrades the full nodes first. While the second full node is down, only the first
// is new, and may not open.
func (f *fixture) loggerLast(t *testing.T, ctx context.Context) {
	primary, logger, program := f.heal(t, ctx), f.Len()-1, os.Getenv(binaryVariable)
	replica := 1 - primary
	lacks := f.Name(logger) + " runs quorate v0.0.1-previous, which promises no lease: upgrade it"
	says := func(line string) {
		t.Helper()
		if err := devcluster.Poll(ctx, "status says "+line, func(context.Context) (bool, string, error) {
			out, _ := f.quorate(t, ctx, replica, "status") // without a primary it fails
			return strings.Contains(out, line), out, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 100)
	f.restartAs(t, ctx, replica, program)
	says("survives no failure: 3 of 3 voters run; " + lacks)
	if _, err := f.WaitAllReady(ctx); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 100)
	if err := f.Terminate(ctx, primary); err != nil {
		t.Fatal(err)
	}
	says("2 of 3 voters run, a majority, but " + lacks)
	f.restartAs(t, ctx, logger, program)
	load.awaitAcks(t, ctx, 100)
	f.SetBinary(primary, program)
	f.heal(t, ctx)
	load.stop(t)
	f.check(t, ctx)
}

// roll stops nodes one after the other, in an order, and starts each with another
// program, while writers write. After each it calls between with the number of nodes that have the program.
func (f *fixture) roll(t *testing.T, ctx context.Context, program string, order []int, between func(done int)) {
	t.Helper()
	f.heal(t, ctx)
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 100)
	load.ResetGap()
	for done, i := range order {
		if err := f.Terminate(ctx, i); err != nil {
			t.Fatal(err)
		}
		f.SetBinary(i, program)
		load.awaitAcks(t, ctx, 50)
		f.heal(t, ctx)
		load.awaitAcks(t, ctx, 50)
		between(done + 1)
	}
	load.stop(t)
	t.Logf("%+v, longest write gap %v", load.Stats(), load.Gap().Round(time.Millisecond))
}
