package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/transport"
)

// recoverRequest asks an agent what its node has, for the recovery of another.
const recoverRequest = "recover.report"

// Recovery makes this node a cluster of its own, after a majority is gone for good.
// Its agent does not run: the data directory is locked until Close. Until then it listens at the peer port: other nodes
// may serve the same cluster that this node does not know, or be recovered at the same time.
type Recovery struct {
	a       *Agent
	node    *quorumloss.Survivor // nil: it could not be opened
	asking  *transport.Transport // nil: it does not listen
	hears   *quorumloss.Callers
	heard   <-chan time.Time // each node that can reach this one has dialled it by then
	stop    context.CancelFunc
	stopped chan error
}

// StartError says why no agent could start here either. It is no refusal to recover.
type StartError struct{ error }

// Unwrap returns the reason.
func (e *StartError) Unwrap() error { return e.error }

// OpenRecovery reads what the node of a configuration has. It changes nothing that a
// start of the agent would not.
func OpenRecovery(cfg config.Config, logger *slog.Logger, version string) (*Recovery, error) {
	a, err := New(cfg, logger, version)
	if err != nil {
		return nil, &StartError{err}
	}
	switch life := a.data.Life(); {
	case a.data.Fresh():
		return nil, fmt.Errorf("data directory %s is empty: there is nothing to recover from", cfg.DataDir)
	case life == datadir.Joining:
		return nil, fmt.Errorf("node %s has not finished joining the cluster: it has nothing to recover from", cfg.Node)
	case life == datadir.Removed:
		return nil, fmt.Errorf("node %s was removed from the cluster: recover on a member", cfg.Node)
	}
	if err := checkOwner(cfg.DataDir, os.Geteuid()); err != nil {
		return nil, err
	}
	if err := a.data.open(); err != nil {
		return nil, err // it says to stop that agent
	}
	r := &Recovery{a: a}
	if r.node, err = quorumloss.OpenSurvivor(quorumloss.SurvivorConfig{
		Self: a.self, Cluster: cfg.Cluster, Home: a.data.Home, Members: cfg.ClusterMembers(), Log: a.logOptions(), Records: a.records,
	}); err == nil {
		err = r.listen()
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// listen answers at the peer port, for the other nodes that are recovered, and hears who dials.
func (r *Recovery) listen() error {
	report, err := r.node.Report()
	if err != nil {
		return err
	}
	r.a.out = &report
	r.hears = &quorumloss.Callers{State: r.node.Survey.State.State, Pinned: r.a.data.known.Pinned}
	cfg := r.a.transportConfig(&recovering{Callers: r.hears, a: r.a}, transport.PeersOf(r.node.Others()))
	cfg.Logger = slog.New(slog.DiscardHandler) // the verdict has what a person needs
	asking := transport.New(cfg)
	if err := peerPort.opened(asking.Listen()); err != nil {
		return &StartError{fmt.Errorf("listen for nodes that this node does not know: %w", err)}
	}
	r.asking, r.stopped, r.heard = asking, make(chan error, 1), time.After(transport.FoundAfter)
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.stopped <- asking.Answer(ctx) }()
	return nil
}

// checkOwner refuses a data directory with files of another user than uid: that user's agent could not read what this
// process writes, or this process cannot read those. Where root has the directory, root's agent has all that is in it.
func checkOwner(dir string, uid int) error {
	of, _, _ := ownerOf(dir)
	if uid == 0 && of == 0 {
		return nil
	}
	found := dir
	for _, name := range []string{datadir.IdentityFile, datadir.ClusterState} { // these two belong to the agent
		if owner, _, ok := ownerOf(filepath.Join(dir, name)); ok {
			if found, of = filepath.Join(dir, name), owner; of != uid {
				break
			}
		}
	}
	if of == uid {
		return nil
	}
	return fmt.Errorf("data directory %s: %s belongs to uid %d: run this as that user, or, if uid %d is to run the agent from now on, chown -R %d %s first",
		dir, found, of, uid, uid, dir)
}

// Close gives the data directory back.
func (r *Recovery) Close() (err error) {
	if r.asking != nil {
		r.stop()
		err = <-r.stopped
	}
	if r.node != nil {
		err = errors.Join(err, r.node.Close())
	}
	return errors.Join(err, r.a.data.Close())
}

// Check hears which nodes dial this one, and asks the other members what they have. It says what speaks against going
// on without them.
func (r *Recovery) Check(ctx context.Context) (recovery.Verdict, error) {
	if r.heard != nil {
		select {
		case <-r.heard:
			r.heard = nil
		case <-ctx.Done():
			return recovery.Verdict{}, context.Cause(ctx)
		}
	}
	return r.node.Check(func(others []cluster.Member) ([]recovery.Finding, []recovery.Caller) {
		return r.ask(ctx, others), slices.Concat(r.askAdded(ctx), r.hears.List())
	})
}

// ask asks the agents of all other members at once.
func (r *Recovery) ask(ctx context.Context, others []cluster.Member) []recovery.Finding {
	nodes := make([]recovery.Finding, len(others))
	var all sync.WaitGroup
	for i, m := range others {
		all.Go(func() { nodes[i] = r.askNode(ctx, r.asking, m) })
	}
	all.Wait()
	return nodes
}

func (r *Recovery) askNode(ctx context.Context, by *transport.Transport, m cluster.Member) recovery.Finding {
	report := &recovery.Report{}
	err := r.a.askBy(ctx, by, m.ID, recoverRequest, report)
	failed, ok := errors.AsType[*control.Error](err)
	answered := ok || errors.Is(err, operate.ErrNoAnswer)
	switch {
	case ok:
		err = errors.New(failed.Text)
	case err != nil:
		err = fmt.Errorf("ask node %s: %w", m.Name, err)
	}
	return quorumloss.NodeOf(m, report, answered, err)
}

// askAdded asks the nodes in [[added]] that this node knows neither as members nor as former members, at once. Nobody dials
// a node that was removed while it was away: so only they can tell it that the cluster goes on.
func (r *Recovery) askAdded(ctx context.Context) (said []recovery.Caller) {
	state, added := r.node.Survey.State.State, r.a.cfg.AddedMembers()
	said = make([]recovery.Caller, len(added))
	var all sync.WaitGroup
	for i, m := range added {
		if _, member := state.MemberByID(m.ID); member || state.Former(m.ID) {
			continue
		}
		all.Go(func() {
			asked := &beside{}
			n := r.askNode(ctx, transport.New(r.a.transportConfig(asked, []transport.Peer{transport.PeerOf(m)})), m)
			if n.Reachable && !asked.waits && (n.Report == nil || n.Report.Out == "") {
				said[i] = recovery.Caller{Name: m.Name, From: m.Peer, Stranger: true, Said: cmp.Or(n.Problem, "it takes this node for a member")}
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(said, func(c recovery.Caller) bool { return c.Name == "" })
}

// beside is the peers' handler with which a node is asked that is no member here.
type beside struct {
	stranger
	waits bool // the node has no data: it waits to join
}

// CheckPeer implements transport.Handler. It pins nothing.
func (h *beside) CheckPeer(id transport.Identity) error {
	h.waits = id.Empty()
	return nil
}

// recovering is the peers' handler of a node that is to be recovered. It asks other agents in this node's name, tells
// them what this node has if they ask, and hears who dials.
type recovering struct {
	stranger
	*quorumloss.Callers
	a *Agent
}

// CheckPeer implements transport.Handler: no agent runs here. It pins nothing. An empty node must not begin, because this
// node has data.
func (h *recovering) CheckPeer(id transport.Identity) error {
	code := transport.CodeMalformed
	if id.Empty() {
		code = transport.CodeEmpty
	}
	return &transport.RejectedError{Code: code, Text: fmt.Sprintf("node %q has data, and its agent does not run: \"quorate recover\" does", h.a.self.Name)}
}

// CheckCaller implements transport.CallChecker: a node that is recovered, too, may ask.
func (h *recovering) CheckCaller(id transport.Identity) error { return h.CheckAnswer(id) }

// Call implements transport.Handler.
func (h *recovering) Call(ctx context.Context, from cluster.NodeID, conn net.Conn) {
	h.a.requests.ServeCall(ctx, from, conn)
}

// Hears implements transport.Hearer.
func (h *recovering) Hears() bool { return true }

// Heard implements transport.Hearer. A name that no node can have is nobody's.
func (h *recovering) Heard(id transport.Identity, from net.Addr, _ *transport.RejectedError) {
	if config.CheckName(id.NodeName) == nil {
		h.Hear(id, hostOf(from))
	}
}

// hostOf returns an address without its port, which is another one at each dial.
func hostOf(from net.Addr) string {
	host, _, err := net.SplitHostPort(from.String())
	if err != nil {
		return from.String()
	}
	return host
}

// Do makes this node a cluster of its own. v is Check's verdict, which must allow it.
func (r *Recovery) Do(by string, v recovery.Verdict) (cluster.Recovery, error) {
	return r.node.Do(by, v, time.Now(), datadir.NewInstance())
}

// controlRecoverReport tells another node, on which a cluster is to be recovered, what this
// one has, committed or not.
func (a *Agent) controlRecoverReport(context.Context, control.Request) (operate.Done, error) {
	if a.out != nil {
		return operate.Done{Result: a.out, ReadOnly: true}, nil
	}
	if !a.TakesPart() {
		return operate.Done{}, a.requests.NoPart()
	}
	leader := ""
	if role := a.Raft.Role(); role.Leader != 0 {
		leader = a.board.Name(role.Leader)
	}
	report, err := quorumloss.ReportOf(a.self, a.log, a.Raft.Committed(), leader, a.board.Nodes())
	if err != nil {
		return operate.Done{}, err
	}
	return operate.Done{Result: report, ReadOnly: true}, nil
}

// RecoveryInterrupted tells whether a recovery of this node was interrupted. FinishRecovery
// finishes it.
func RecoveryInterrupted(cfg config.Config) (bool, error) {
	return quorumloss.Interrupted(datadir.New(vfs.OS{}, cfg.DataDir))
}

// FinishRecovery finishes a recovery of this node that was interrupted, if there is one.
func FinishRecovery(cfg config.Config) error {
	if found, err := RecoveryInterrupted(cfg); err != nil || !found {
		return err
	}
	if err := checkOwner(cfg.DataDir, os.Geteuid()); err != nil {
		return err
	}
	d := datadir.NewLocked(datadir.NewHome(datadir.New(vfs.OS{}, cfg.DataDir), datadir.Identity{}, false))
	if err := d.TakeLock(); err != nil {
		return err
	}
	return errors.Join(quorumloss.Finish(vfs.OS{}, cfg.DataDir), d.Close())
}
