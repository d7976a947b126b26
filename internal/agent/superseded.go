package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/recovery"
	"github.com/quorate/quorate/internal/seglog"
	"github.com/quorate/quorate/internal/transport"
)

// A node of before: its cluster was recovered on another node without it (quorate
// recover). One node that says so is enough, as with a removal: a person has said
// that this one was gone. It kills its mysqld and serves nothing but its status, which
// names what it has and the recovered cluster lacks, until it is rebuilt there. Its
// data stay until then. To others of before that reach it it passes the word on.
//
// Not so one with a leader: then there is a majority that was never gone, and has
// acknowledged what the recovered node lacks. Who was wrong is for people to say. It
// notes that it refuses that recovery, and so does one that hears of such a node: a
// majority that is down for a while, or is being healed, would end by it otherwise.

// obeyAfter is for how long a node is without a leader that takes it that the cluster
// was recovered without it: elections take less. One that has just started obeys at
// once, before it elects anybody, unless another of before says otherwise.
const obeyAfter = 10 * time.Second

// orderOf reads of which recovery a cluster comes that says that a node is none of its
// members, is to be rebuilt, or was removed.
func orderOf(err *transport.RejectedError) (cluster.Recovery, bool) {
	switch err.Code {
	case transport.CodeRecovered, transport.CodeRebuild, transport.CodeRemoved:
		return cluster.ParseRecoveryOrder(err.Text)
	}
	return cluster.Recovery{}, false
}

// recoverySuffix names the recovery that a state comes from behind an order by it.
func recoverySuffix(s cluster.State) string {
	if s.Recovered == nil {
		return ""
	}
	return s.Recovered.Suffix()
}

// mayOrder tells whether an order to be rebuilt, or that this node was removed, comes
// from its own cluster; after it has obeyed a recovery, from the recovered one. Others
// were recovered apart: the person who gave the order there may have been mistaken.
// version is that of the state that the order is by; 0 = it does not say. Who has no
// data has nothing to lose.
func (a *Agent) mayOrder(err *transport.RejectedError, version uint64) bool {
	id, known := a.data.identity, a.board.clusterState()
	if a.data.fresh && !id.Log || id.Joining {
		return true
	}
	own := known.Recovered
	if id.Superseded != nil && id.Superseded.Version > known.Version {
		own, known.Version = id.Superseded, id.Superseded.Version
	}
	if r, ok := orderOf(err); ok {
		return own != nil && own.Is(r)
	}
	return cluster.Generation(version) <= cluster.Generation(known.Version) // an older agent names none
}

// sentenceOf is what a rejection says to people.
func sentenceOf(err *transport.RejectedError) string {
	if sentence := err.Sentence(); sentence != err.Text {
		return sentence
	}
	if _, _, ok := rebuildOrder(err.Text); ok {
		return strings.TrimSuffix(err.Text[:strings.LastIndexByte(err.Text, ' ')+1], ": ")
	}
	return err.Text
}

// supersedes tells whether a recovery is news to this node: one that has joined
// since, or was recovered itself, has a later state.
func (a *Agent) supersedes(r cluster.Recovery) bool {
	id := a.data.identity
	known := a.board.clusterState().Version
	if id.Superseded != nil {
		known = max(known, id.Superseded.Version)
	}
	return (!a.data.fresh || id.Log) && !id.Joining && r.Version > known
}

// superseded notes durably that the cluster was recovered without this node.
func (d *dataDir) superseded(r cluster.Recovery) error {
	d.identity.Superseded = &r
	return writeJSON(d.join(identityFile), d.identity)
}

// supersededPeers is the peers' handler of such a node.
type supersededPeers struct {
	stranger
	a *Agent
}

// CheckCaller implements transport.CallChecker: whoever is to be recovered next may ask
// what this one has.
func (h supersededPeers) CheckCaller(transport.Identity) error { return nil }

// Call implements transport.Handler.
func (h supersededPeers) Call(ctx context.Context, from cluster.NodeID, conn net.Conn) {
	h.a.serveCall(ctx, from, conn)
}

// CheckPeer implements transport.Handler: others of before learn of it.
func (h supersededPeers) CheckPeer(id transport.Identity) error {
	return &transport.RejectedError{Code: transport.CodeRecovered, Text: h.a.data.identity.Superseded.Order(id.NodeName)}
}

// Rejected implements transport.Handler: the recovered cluster may want this node to
// be rebuilt.
func (h supersededPeers) Rejected(id cluster.NodeID, err *transport.RejectedError) {
	h.a.rejected(h.a.board.name(id), err)
}

// runSuperseded shows that this node is out, and waits to be rebuilt, until ctx ends.
func (a *Agent) runSuperseded(ctx context.Context) (err error) {
	if err := a.data.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.settle(), a.data.close()) }()
	last, err := lastState(a.data.join(stateFile))
	if err != nil {
		return err
	}
	if len(last.State.Members) > 0 && last.State.Version > 0 {
		a.board.setState(last.State)
	}
	report, err := a.closedReport()
	if err == nil {
		a.out = &report
	}
	reason := report.Out + "; " + a.surplus(report, err)
	a.logger.Error("this node serves only its status", "reason", reason, "data_dir", a.cfg.DataDir)
	a.board.update(func(s *cluster.NodeStatus) {
		s.Role, s.Mysqld, s.Reason = cluster.RoleRemoved, cluster.MysqldStopped, reason
	})
	a.peers = transport.New(transport.Config{
		Identity: a.transportIdentity(), Listen: a.self.Peer, Peers: a.transportPeers(),
		Handler: supersededPeers{a: a}, Logger: a.logger,
	})
	a.buildAPI()
	defer a.api.Unlisten()
	defer a.peers.Unlisten()
	if err := errors.Join(a.peers.Listen(), a.api.Listen(), a.api.ListenControl()); err != nil {
		return fmt.Errorf("open the ports of a node that is out: %w", err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	a.setFail(fail)
	eg, ctx := errgroup.WithContext(ctx)
	eg.Go(func() error { return a.peers.Run(ctx) })
	eg.Go(func() error { return a.api.Run(ctx) })
	return eg.Wait()
}

// surplus says what this node has, or why that is not known, and the recovered cluster
// lacks.
func (a *Agent) surplus(r recovery.Report, err error) string {
	by := a.data.identity.Superseded
	if by.GTIDs == "" {
		return "what only this node has is in its log (quorate log ls)"
	}
	var own, theirs *gtid.Set
	if err == nil {
		own, err = gtid.ParseSet(r.Log.GTIDs)
	}
	if err == nil {
		theirs, err = gtid.ParseSet(by.GTIDs)
	}
	if err != nil {
		return fmt.Sprintf("what only this node has is not known: %v", err)
	}
	own.Subtract(theirs)
	if own.IsEmpty() {
		return "it has no transactions that are not there"
	}
	return fmt.Sprintf("it has %d transactions that are not there: %s", own.Count(), own)
}

// closedReport is what this node's log has, committed or not, which stays as it is.
func (a *Agent) closedReport() (r recovery.Report, err error) {
	r = recovery.Report{Node: a.self.Name, Out: a.data.identity.Superseded.Sentence(a.self.Name)}
	log, err := seglog.Open(a.logOptions(false))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	newest := log.Segments()[len(log.Segments())-1]
	set := newest.GTIDsBefore.Clone()
	if err := consensus.AddTransactions(set, log, newest.FirstIndex, log.LastIndex()); err != nil {
		return r, err
	}
	if r.Log, err = logOf(log, log.LastIndex(), set.String()); err != nil {
		return r, err
	}
	r.Log.Commit = log.HardState().Commit
	return r, nil
}

// keptState reads the cluster state that belongs to a log that begins at first. Of a
// cluster that was recovered it is nowhere else: the configuration and the log know
// the members of before.
func (a *Agent) keptState(first uint64) error {
	path := a.data.join(stateFile)
	if a.data.identity.Recovered && !fileExists(path) {
		return fmt.Errorf("%s is gone, and says alone that the cluster was recovered, and who is in it: "+
			"give it back, or rebuild this node", path)
	}
	return a.state.load(path, a.cfg.ClusterMembers(), a.data.identity.State, first)
}

// leftBehind are the orders to the nodes that a recovery went on without.
func leftBehind(s cluster.State) map[cluster.NodeID]string {
	orders := map[cluster.NodeID]string{}
	if s.Recovered != nil {
		for _, m := range s.Recovered.Without {
			orders[m.ID] = s.Recovered.Order(m.Name)
		}
	}
	return orders
}

// stillWithout is the recovery of a cluster, while it goes on without nodes of before.
func stillWithout(s cluster.State) *cluster.Recovery {
	if s.Recovered == nil || len(s.Recovered.Without) == 0 {
		return nil
	}
	return s.Recovered
}
