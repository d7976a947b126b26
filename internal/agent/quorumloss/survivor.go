package quorumloss

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/transport"
)

// SurvivorConfig is what a Survivor needs. All fields are required.
type SurvivorConfig struct {
	Self    cluster.Member
	Cluster string
	Home    *datadir.Home
	// Members are the initial members, Log is how the log is opened.
	Members []cluster.Member
	Log     seglog.Options
	Records *history.Records
}

// Survivor is a node whose agent does not run, and which may be made a cluster of its own.
type Survivor struct {
	cfg SurvivorConfig
	// Log has what the node has, Survey says what of it counts.
	Log    *seglog.Log
	Survey consensus.Survey
}

// OpenSurvivor reads what a node has. It changes nothing that a start of the agent would not.
func OpenSurvivor(c SurvivorConfig) (s *Survivor, err error) {
	s = &Survivor{cfg: c}
	if err := c.Home.CheckLog(); err != nil {
		return nil, err
	}
	if s.Log, err = seglog.Open(c.Log); err != nil {
		return nil, fmt.Errorf("open the log, which has to be whole: %w", err)
	}
	if s.Log.LastIndex() < s.Log.FirstIndex() {
		return nil, errors.Join(fmt.Errorf("the log of node %s is empty: there is nothing to recover from", c.Self.Name), s.Close())
	}
	var kept datadir.State
	if err = kept.Load(c.Home, c.Members, s.Log.FirstIndex()); err == nil {
		s.Survey, err = consensus.SurveyLog(s.Log, kept.Point())
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close closes the log.
func (s *Survivor) Close() error { return s.Log.Close() }

// Report is what the node says of itself to another one that is to be recovered.
func (s *Survivor) Report() (r recovery.Report, err error) {
	r = recovery.Report{Node: s.cfg.Self.Name, Recovers: true}
	if by := s.cfg.Home.Own().Superseded; by != nil {
		r.Out = by.Sentence(s.cfg.Self.Name)
	}
	r.Log, err = logOf(s.Log, s.Log.LastIndex(), s.Log.HardState().Commit, s.Survey.GTIDs.String())
	return r, err
}

// Others returns the other members.
func (s *Survivor) Others() []cluster.Member {
	return slices.DeleteFunc(slices.Clone(s.Survey.State.State.Members), func(m cluster.Member) bool { return m.ID == s.cfg.Self.ID })
}

// Check says what speaks against going on without the other members. ask asks them all at once, and returns who
// dialled the node, too.
func (s *Survivor) Check(ask func(others []cluster.Member) ([]recovery.Finding, []recovery.Caller)) (v recovery.Verdict, err error) {
	c, p := s.cfg, s.Survey.State
	if _, ok := p.State.MemberByID(c.Self.ID); !ok {
		return v, fmt.Errorf("node %s was removed from the cluster: recover on a member", c.Self.Name)
	}
	about := recovery.Situation{
		Cluster: c.Cluster, Survivor: c.Self.Name, Mysqld: c.Self.Kind != cluster.KindLogger,
		Voters: recovery.VoterNames(p.State, p.State.Voters()), Outgoing: recovery.VoterNames(p.State, p.Outgoing),
	}
	if by := c.Home.Own().Superseded; by != nil {
		about.Out = by.Sentence(c.Self.Name)
	}
	if f, err := c.Home.Fence(); err != nil {
		return v, err
	} else if f != nil {
		about.Fenced = f.String()
	}
	if about.Log, err = logOf(s.Log, s.Log.LastIndex(), s.Log.HardState().Commit, s.Survey.GTIDs.String()); err != nil {
		return v, err
	}
	about.Nodes, about.Callers = ask(s.Others())
	return recovery.Check(about)
}

// NodeOf is what was learnt of a member that was asked for its report. answered: its agent runs
// there, even if it could not give a report.
func NodeOf(m cluster.Member, report *recovery.Report, answered bool, err error) recovery.Finding {
	n := recovery.Finding{Name: m.Name, Voter: m.Votes()}
	if err == nil {
		n.Reachable, n.Report = true, report
		return n
	}
	n.Problem = err.Error()
	if r, ok := errors.AsType[*transport.RejectedError](err); ok {
		n.Refuses, n.Problem = !r.Elsewhere(), r.Text
	}
	n.Reachable = n.Refuses || answered
	return n
}

// Do makes the node a cluster of its own. v is Check's verdict, which must allow that. After an
// error it may be done or not: see Finish.
func (s *Survivor) Do(by string, v recovery.Verdict, now time.Time, instance string) (cluster.Recovery, error) {
	c, at := s.cfg, now.UTC()
	kind := cluster.KindLogger
	if c.Self.Kind != cluster.KindLogger {
		kind = cluster.KindFull
	}
	rejected, err := c.Home.Refused()
	if err != nil {
		return cluster.Recovery{}, err
	}
	id := c.Home.Own()
	before := recovery.Above(s.Survey.State.State, rejected, id.Superseded)
	id = id.AsMember(true)
	id.Instance = instance
	c.Records.Open()
	state, err := before.Recover(c.Self.Name, kind, instance, s.Survey.GTIDs.String(),
		cluster.Recovery{Cluster: c.Cluster, By: by, At: at.Truncate(time.Second)})
	if err != nil {
		return cluster.Recovery{}, err
	}
	// The state has all changes up to the log's end.
	last := s.Log.LastIndex()
	record := Record{
		Format: Format, Identity: id,
		State: datadir.NewStateRecord(cluster.StatePoint{State: state, Index: last, Through: last}),
		Audit: cluster.AuditEntry{
			At: at, By: by, Result: "done", Version: state.Version, Node: c.Self.Name, Seq: c.Records.NextSeq(at),
			What: fmt.Sprintf("%s: the log to entry %d, lacking %s", state.Recovered, last, v.Record()),
		},
	}
	if kind == cluster.KindFull {
		if err := record.NewServer(c.Home.Dir); err != nil {
			return cluster.Recovery{}, err
		}
	}
	return *state.Recovered, record.Make(c.Home.FS(), c.Home.Path())
}

// callersMax bounds the callers that are kept. Anybody may call. Each member is kept once, so that the members, nine at
// most, leave room for a stranger.
const callersMax = 32

// Callers checks the nodes that a survivor meets, and keeps those that dial it. Any goroutine may call its methods.
type Callers struct {
	// State is the cluster state of the survivor. Pinned is the data directory that it has met of a node; "" = none.
	State  cluster.State
	Pinned func(cluster.NodeID) string

	mu   sync.Mutex
	came []recovery.Caller
}

// CheckAnswer implements transport.AnswerChecker. It takes no answer from a node whose data directory is not the one
// that the survivor knows: with it, that node could elect nobody here.
func (c *Callers) CheckAnswer(id transport.Identity) error {
	if id.Empty() {
		return fmt.Errorf("the data directory of node %q is empty: mount its disk, or stop its agent if the disk is gone", id.NodeName)
	}
	pinned := c.Pinned(id.Node)
	if instance := hex.EncodeToString(id.Instance[:]); pinned != "" && pinned != instance {
		return fmt.Errorf("node %q has another data directory (instance %.8s) than this node knows (instance %.8s)", id.NodeName, instance, pinned)
	}
	return nil
}

// Hear takes a node that dials from a host. A node with an empty directory serves nothing. A member's id with another
// name is nobody's. A former member with the directory that it had says nothing new. A stranger is no member, or comes
// with another directory than the survivor knows.
func (c *Callers) Hear(id transport.Identity, host string) {
	it := recovery.Caller{Name: id.NodeName, From: host, Stranger: true}
	m, member := c.State.MemberByID(id.Node)
	instance, pinned := hex.EncodeToString(id.Instance[:]), c.Pinned(id.Node)
	switch known := cmp.Or(m.Instance, pinned); {
	case id.Empty(), member && m.Name != it.Name, !member && c.State.Former(id.Node) && pinned == instance:
		return
	case member: // until a rebuild is complete, the directory that was met counts
		it.Stranger = known != "" && known != instance && pinned != instance
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := slices.ContainsFunc(c.came, func(k recovery.Caller) bool { return k == it || k.Name == it.Name && !k.Stranger && !it.Stranger })
	if len(c.came) < callersMax && !kept {
		c.came = append(c.came, it)
	}
}

// List returns who has dialled, in a stable order.
func (c *Callers) List() []recovery.Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(slices.Values(c.came), func(x, y recovery.Caller) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.From, y.From))
	})
}
