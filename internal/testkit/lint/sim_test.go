package lint

import (
	"bytes"
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// simPackage is the simulator.
const simPackage = "internal/testkit/sim"

// deciding are the packages whose code decides what nodes do.
var deciding = []string{
	"internal/agent/", "internal/cluster", "internal/raft/consensus", "internal/raft/logcopy", "internal/raft/bulk", "internal/raft/transport",
	"internal/log/retention", "internal/log/seglog", "internal/role", "internal/mysql/replay", "internal/mysql/tap", "internal/mysql/feed", "internal/mysql/mysqlwire",
}

// simCalls are the functions and methods of these packages that the simulator calls itself: which, in which files,
// and why the call decides nothing. A new call here means that the simulator makes a decision which the agent makes in a
// place of its own, unless its reason says otherwise. docs/simulation.md, "What runs", tells more. The list cannot show
// decisions that the simulator makes without a call: by a condition of its own, or by leaving something out.
var simCalls = []simCall{
	{
		"makes or opens what then runs by itself",
		"disk.go faults_operator.go losses.go mysqld_replica.go node_agent.go node_epoch.go node_join.go node_members.go node_stage.go policy.go",
		`board.New bulk.New cluster.NewState datadir.New feed.Open freshness.NewHeard feed.Source.Start history.New join.New member.Member.Open membership.New
		membership.NewDeparting membership.NewFollower mysqlwire.NewDumpWriter mysqlwire.StartTap primary.NewOrder quorumloss.New
		quorumloss.OpenSurvivor seglog.Open`,
	},
	{
		"is a log whose reads take time: a twin, which docs/simulation.md names",
		"readahead.go",
		"seglog.Log.Entries seglog.Log.FirstIndex seglog.Log.LastIndex",
	},
	{
		"starts what then runs by itself, as agent.Run does",
		"node_agent.go node_heal.go node_join.go node_stage.go node_watch.go clocks.go faults_operator.go mysqld_replica.go reads.go",
		`freshness.Heard.Run member.Member.Init member.Member.Loops member.Member.Gossip member.Member.RunRole consensus.Runner.Run bulk.Bulk.Run board.Board.Gossip
		join.Introduction.Run join.Joiner.Run logcopy.Heal primary.Orders.Run consensus.Promise mysqlwire.DumpWriter.Stream`,
	},
	{
		"reads what is on disk, as a process does that starts",
		"node.go node_agent.go node_members.go node_out.go disk.go losses.go world.go",
		`datadir.Visit datadir.Home.CheckLog datadir.Home.Life datadir.Home.Own datadir.Home.Instance datadir.Dir.Has datadir.Dir.Known
		datadir.Dir.Refused datadir.Dir.State datadir.Dir.FS datadir.Dir.Path datadir.Mark.Load datadir.State.Point retention.Heard.Load
		membership.Directories.Load quorumloss.Stance.Load membership.Follower.Follow`,
	},
	{
		"writes by an interface of the product, which said what and when; the world says how long it takes, and whether it is cut off",
		"node_agent.go node_join.go node_members.go node_out.go node_purge.go node_heal.go disk.go mysqld_clone.go policy.go",
		`datadir.State.Write datadir.Dir.WriteMark datadir.Dir.WritePromise datadir.Dir.WriteRefused datadir.Mark.Advance datadir.Mark.Of
		datadir.Home.Begin datadir.Home.Clear datadir.Home.Copied datadir.Home.Joined datadir.Home.SetAside consensus.Log.Append consensus.Log.HardState consensus.Log.LastIndex
		member.Member.KeepState replay.MarkText.Mark seglog.Log.Append seglog.Log.Close seglog.Log.FirstIndex seglog.Log.Purge`,
	},
	{
		"carries out what a joiner asks for by join.Node",
		"node_join.go",
		`board.Board.SetRole board.Board.Members membership.Directories.Forget membership.Directories.Learn membership.Follower.Follow datadir.Dir.Has
		seglog.Log.Close seglog.Log.FirstIndex seglog.Log.LastIndex transport.Door.SetFormer`,
	},
	{
		"hands over what has arrived by the modelled network, or that a connection ended, to the code that judges it",
		"connections.go conn.go node_agent.go node_join.go node_members.go node_watch.go",
		`consensus.Runner.Step consensus.Runner.PeerUnreachable consensus.Runner.PeerRefused bulk.Bulk.Serve board.Board.Received board.Board.PeerUp board.Board.SetTrouble board.Board.Name
		membership.Directories.Check membership.Directories.Compare quorumloss.Stance.Refused quorumloss.Stance.RefusedDial quorumloss.Stance.Word board.Board.Members
		member.Member.AsMember join.Member.Plan primary.Inbox.Put
		transport.Door.Accept transport.Door.Admit transport.Door.SetFormer transport.Introduction.Add`,
	},
	{
		"answers what the product asks of its host, from the product's own state",
		"node_agent.go node_epoch.go node_heal.go node_join.go node_members.go node_operate.go node_out.go node_purge.go node_watch.go mysqld_replica.go mysqld_process.go connections.go",
		`board.Board.Lives board.Board.Own board.Board.State board.Board.Nodes board.Board.Members board.Board.Wake board.Board.Update board.Shown
		consensus.Runner.Committed consensus.Committed.Mark consensus.Committed.State consensus.Committed.Changed consensus.Runner.Role consensus.Runner.VotesIn consensus.Runner.Propose
		member.Member.Complete member.CompleteHealing member.Member.Nodes membership.Directories.Empty membership.Directories.Joined membership.SelfOf quorumloss.Stance.Confirm quorumloss.ReportOf
		primary.Duties.Follow primary.Order.Left primary.Slot.Serving primary.Slot.Answering primary.Slot.Tap role.Machine.Phase role.Machine.Reason
		cluster.State.MemberByID cluster.State.Voters seglog.Log.Segments`,
	},
	{
		"ends a process, and notes what it has become",
		"node.go node_agent.go node_heal.go node_join.go node_members.go node_out.go members.go sources.go",
		"membership.Departing.Context membership.Departing.Because membership.Departing.Leave membership.Departing.PersistExit primary.Slot.Close seglog.Log.Close",
	},
	{
		"is an operator, who asks as package operate and the commands do",
		"faults_operator.go faults_stopped.go node_epoch.go node_members.go members.go policy.go losses.go",
		`board.Board.State consensus.Committed.State consensus.Runner.Committed consensus.Runner.Role
		datadir.Dir.Fence datadir.Dir.WriteFence datadir.Dir.RemoveFence member.Member.Fenced
		cluster.Maintenance.Appoint cluster.MaintenanceChange.Designate cluster.Member.Votes
		consensus.Runner.TransferTo consensus.Runner.Resign consensus.Runner.ProposeState consensus.Runner.CheckState membership.RefuseVote board.Board.Members
		quorumloss.ClosedReport quorumloss.NodeOf quorumloss.Finish quorumloss.Survivor.Check quorumloss.Survivor.Do quorumloss.Survivor.Close
		recovery.Verdict.Changed recovery.Verdict.Loss recovery.Verdict.Overridable recovery.Verdict.Record recovery.Verdict.Refusal`,
	},
	{
		"looks: a checker, a client, or a fault that waits for its moment",
		"appliers.go blips.go check_log.go check_losses.go check_members.go check_mysqld.go faults_stopped.go losses.go members.go policy.go reads.go sources.go workload.go world.go mysqld_session.go",
		`board.Board.Nodes board.Board.Own board.Board.Primary board.Board.SinceLeader board.Board.State board.Board.Trouble bulk.Bulk.Stats
		consensus.Committed.Mark consensus.Committed.Read consensus.Committed.State consensus.Group.LastIndex consensus.Runner.Committed consensus.Runner.Group consensus.Runner.Role
		cluster.Majority cluster.Member.Degrade cluster.Member.Votes cluster.Recovery.Is cluster.State.AcksWait cluster.State.Clone cluster.State.Member
		cluster.State.MemberByID cluster.State.SourceOf cluster.State.Voters datadir.Home.Own datadir.State.Point mysqlwire.Tap.Stats primary.Orders.MovesAway
		seglog.Log.FirstIndex seglog.Log.HardState seglog.Log.HasStage seglog.Log.LastIndex seglog.Log.Segments seglog.Log.Term
		status.Node.BacklogSeconds status.Node.CanTakeOver freshness.Heard.LagStatus
		membership.Self.Supersedes primary.Slot.Serving primary.XAPrepared recovery.Rejected.Has role.Machine.Phase role.Machine.Reason`,
	},
}

// simCall lists names and the files in which they are called, separated by white space.
type simCall struct{ why, files, names string }

// adapterLinesMax bounds the simulator's adapters, which give the product its world.
const adapterLinesMax = 1300

// TestSimulatorDecidesNothing: the simulator builds what the agent builds, and is only the
// world around it. The product's code, which runs there unchanged, makes all decisions.
func TestSimulatorDecidesNothing(t *testing.T) {
	called, adapters := simulatorCalls(t), 0
	for _, s := range sources(t) {
		if !s.test && s.dir == simPackage && strings.HasPrefix(path.Base(s.path), "node_") {
			adapters += s.fset.File(s.file.Pos()).LineCount()
		}
	}
	if adapters > adapterLinesMax {
		t.Errorf("the simulator's adapters, node_*.go, have %d lines, at most %d are allowed", adapters, adapterLinesMax)
	}
	unused := map[string]bool{}
	for _, g := range simCalls {
		for _, what := range strings.Fields(g.names + " " + g.files) {
			unused[what+", which "+g.why] = true
		}
	}
	for _, c := range called {
		listed := false
		for _, g := range simCalls {
			if slices.Contains(strings.Fields(g.names), c.name) && slices.Contains(strings.Fields(g.files), c.file) {
				listed = true
				delete(unused, c.name+", which "+g.why)
				delete(unused, c.file+", which "+g.why)
			}
		}
		if !listed {
			t.Errorf("%s:%d: the simulator calls %s: let product code call it, or list it for this file with the reason", c.file, c.line, c.name)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(unused)) {
		t.Errorf("take off the list: %s", what)
	}
}

// simulatorCalls returns the functions and methods of deciding packages that the simulator names,
// as "package.Function" or "package.Type.Method".
func simulatorCalls(t *testing.T) (called []call) {
	var files []*ast.File
	all := sources(t)
	for _, s := range all {
		if !s.test && s.dir == simPackage {
			files = append(files, s.file)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(all[0].fset, "gc", exportData(t))}
	if _, err := conf.Check(module+simPackage, all[0].fset, files, info); err != nil {
		t.Fatal(err)
	}
	for id, o := range info.Uses {
		f, ok := o.(*types.Func)
		if !ok || f.Pkg() == nil {
			continue
		}
		if !slices.ContainsFunc(deciding, func(prefix string) bool { return strings.HasPrefix(f.Pkg().Path(), module+prefix) }) {
			continue
		}
		name := f.Pkg().Name() + "."
		if r := f.Signature().Recv(); r != nil {
			name += strings.TrimPrefix(types.TypeString(r.Type(), func(*types.Package) string { return "" }), "*") + "."
		}
		at := all[0].fset.Position(id.Pos())
		called = append(called, call{name + f.Name(), path.Base(at.Filename), at.Line})
	}
	return called
}

// call is a place at which the simulator names a function.
type call struct {
	name, file string
	line       int
}

// exportData finds the compiler's export data of the packages that the simulator imports.
func exportData(t *testing.T) func(string) (io.ReadCloser, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", "./"+simPackage)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list what the simulator imports: %v", err)
	}
	files := map[string]string{}
	for line := range bytes.Lines(out) {
		p, file, _ := strings.Cut(strings.TrimSpace(string(line)), "\t")
		files[p] = file
	}
	return func(p string) (io.ReadCloser, error) { return os.Open(files[p]) }
}
