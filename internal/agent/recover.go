package agent

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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
// Its agent does not run: the data directory is locked until Close.
type Recovery struct {
	a    *Agent
	node *quorumloss.Survivor // nil: it could not be opened
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
	}); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
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
	if r.node != nil {
		err = r.node.Close()
	}
	return errors.Join(err, r.a.data.Close())
}

// Judge asks the other members what they have, and says what speaks against going on
// without them.
func (r *Recovery) Judge(ctx context.Context) (recovery.Verdict, error) {
	return r.node.Judge(func(others []cluster.Member) []recovery.Finding { return r.ask(ctx, others) })
}

// ask asks the agents of all other members at once.
func (r *Recovery) ask(ctx context.Context, others []cluster.Member) []recovery.Finding {
	var peers []transport.Peer
	for _, m := range others {
		peers = append(peers, transport.PeerOf(m))
	}
	asking := transport.New(r.a.transportConfig(asker{data: r.a.data}, peers))
	nodes := make([]recovery.Finding, len(peers))
	var all sync.WaitGroup
	for i, p := range peers {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, joinAskTimeout)
			defer cancel()
			report, err := r.askNode(ctx, asking, p)
			failed, ok := errors.AsType[*control.Error](err)
			answered := ok || errors.Is(err, operate.ErrNoAnswer)
			if ok {
				err = errors.New(failed.Text)
			}
			nodes[i] = quorumloss.NodeOf(others[i], report, answered, err)
		})
	}
	all.Wait()
	return nodes
}

func (r *Recovery) askNode(ctx context.Context, asking *transport.Transport, p transport.Peer) (*recovery.Report, error) {
	report := &recovery.Report{}
	if err := operate.AskFor(ctx, asking, p.ID, r.a.requests.Question(recoverRequest), report); err != nil {
		return nil, fmt.Errorf("ask node %s: %w", p.Name, err)
	}
	return report, nil
}

// asker asks other agents in this node's name. It takes no answer from a node whose data
// directory is not the one that this node knows: with it, that node could elect nobody here.
type asker struct {
	stranger
	data *dataDir
}

// CheckPeer implements transport.Handler. It pins nothing.
func (h asker) CheckPeer(id transport.Identity) error {
	if id.Instance == [16]byte{} {
		return fmt.Errorf("the data directory of node %q is empty: mount its disk, or stop its agent if the disk is gone", id.NodeName)
	}
	pinned := h.data.known.Pinned(id.Node)
	if instance := hex.EncodeToString(id.Instance[:]); pinned != "" && pinned != instance {
		return fmt.Errorf("node %q has another data directory (instance %.8s) than this node knows (instance %.8s)",
			id.NodeName, instance, pinned)
	}
	return nil
}

// Do makes this node a cluster of its own. v is Judge's verdict, which must allow it.
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
