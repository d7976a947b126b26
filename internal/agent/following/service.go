package following

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/sys/clock"
	"github.com/quorate/quorate/internal/sys/metrics"
)

const (
	// lookEvery is how often it is looked whether this node follows when nothing wakes.
	lookEvery = 500 * time.Millisecond
	// askTimeout bounds a change of who may write, and a question to the source.
	askTimeout = 5 * time.Second
	// againMin and againMax are the pauses before the source is tried again.
	againMin = time.Second
	againMax = 15 * time.Second
	// conflictPause is the pause after two transactions were in each other's way, or a reader in the way of one.
	conflictPause = 200 * time.Millisecond
	// lockWait is how long a change of who may write waits for statements under way: whoever steps down waits behind it.
	lockWait = time.Second
	// answersWithin is how old the source's last answer may be: what is older says nothing of the lag.
	answersWithin = 10 * time.Second
	// drainMax bounds how long transactions may take that are under way when the following ends.
	drainMax = 10 * time.Second
	// textBytesMax bounds what the status says of it.
	textBytesMax = 500
)

// Node is the node around a Service.
type Node interface {
	// Committed is the source of the cluster by what is committed here, nil = none, and the version of the cluster state.
	Committed() (*cluster.Follow, uint64)
	// Serving returns the mysqld of a primary that clients reach, and its term; nil = this node is none.
	Serving() (*mysqld.Process, uint64)
	// Own is this node's status. Show takes a sentence for it; "" = it follows nobody.
	Own() status.Node
	Show(text string)
	// Changed is closed once something changes, such as the cluster state. Wake has it closed.
	Changed() <-chan struct{}
	Wake()
	// ReplicaName is the name of the cluster's primary among the source's replicas: the same on each node, so that the
	// source ends what a former primary has left.
	ReplicaName() (serverID uint32, uuid string)
	// Withheld tells whether a statement must not be executed here.
	Withheld(text string) bool
}

// Service has a node follow the source of the cluster while it is the primary, and carries out requests about that. Make
// one with NewService.
type Service struct {
	node Node
	// requests is where changes are committed.
	requests *operate.Server
	logger   *slog.Logger

	mu     sync.Mutex
	status cluster.FollowStatus
	// answered is when the source said last what it has.
	answered time.Time
	// clients may write to this primary's mysqld: who waits for a cutover looks at it.
	clients bool

	// cutting is held by the cutover under way.
	cutting sync.Mutex
}

// NewService returns the Service of a node. It starts nothing.
func NewService(node Node, requests *operate.Server, logger *slog.Logger) *Service {
	return &Service{node: node, requests: requests, logger: logger}
}

func (s *Service) set(change func(*cluster.FollowStatus)) cluster.FollowStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
	return s.status
}

func (s *Service) get() cluster.FollowStatus { return s.set(func(*cluster.FollowStatus) {}) }

// Metrics are the present figures: on each node whether the cluster follows, on the primary how far it is.
func (s *Service) Metrics(now time.Time) []metrics.Sample {
	want, _ := s.node.Committed()
	m := []metrics.Sample{metrics.Bool("quorate_follow", want != nil)}
	s.mu.Lock()
	st, answers := s.status, now.Sub(s.answered) <= answersWithin
	s.mu.Unlock()
	if st.Follow == nil {
		return m
	}
	m = append(m,
		metrics.Bool("quorate_follow_failing", st.Error != ""),
		metrics.Bool("quorate_follow_source_answers", answers),
		metrics.Of("quorate_follow_transactions_total", st.Written),
		metrics.Of("quorate_follow_left_out_total", st.LeftOut))
	if answers {
		m = append(m, metrics.Of("quorate_follow_lag_transactions", st.Left))
	}
	if answers && st.Known {
		m = append(m, metrics.Of("quorate_follow_lag_seconds", st.Seconds))
	}
	return m
}

// Opened notes whether clients may write to a mysqld that was opened for writes.
func (s *Service) Opened(may bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = may
}

func (s *Service) clientsMayWrite() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients
}

// stretch is one of following: one source, one mysqld, one term.
type stretch struct {
	process *mysqld.Process
	term    uint64
	source  cluster.Follow
	// finish has it read no more, and end what is under way; end ends it at once.
	finish, end context.CancelFunc
	ended       chan struct{}
}

// loop is Run's own.
type loop struct {
	now  *stretch // nil = nothing is followed
	said string
}

// Run has the primary, and only it, follow the source of the cluster, and keeps clients from writing meanwhile.
func (s *Service) Run(ctx context.Context) error {
	c := clock.Machine{}
	l := loop{}
	for {
		changed := s.node.Changed()
		err := s.keep(ctx, &l)
		said := ""
		if err != nil {
			said = err.Error()
		}
		if said != l.said && said != "" {
			s.logger.Warn("the source of the cluster is not followed as it should be", "error", err)
		}
		l.said = said
		if c.Wait(ctx, lookEvery, changed) != nil {
			l.stop()
			return nil
		}
	}
}

// stop ends what is followed, and waits until its sessions are gone.
func (l *loop) stop() {
	if l.now != nil {
		l.now.end()
		<-l.now.ended
		l.now = nil
	}
}

// finish is stop behind what is under way: transactions are not committed in their order, so one may be lacked that came before
// another that is here.
func (l *loop) finish(ctx context.Context) {
	if l.now != nil {
		l.now.finish()
		select {
		case <-l.now.ended:
		case <-time.After(drainMax):
		case <-ctx.Done():
		}
	}
	l.stop()
}

// keep does what the cluster state says: first who may write, then who is followed.
func (s *Service) keep(ctx context.Context, l *loop) error {
	want, _ := s.node.Committed()
	p, term := s.node.Serving()
	if n := l.now; n != nil && (p == nil || want == nil || n.process != p || n.term != term || n.source != *want) {
		if n.process == p && n.term == term {
			l.finish(ctx)
		}
		l.stop()
		s.set(func(st *cluster.FollowStatus) { *st = cluster.FollowStatus{} })
	}
	if p == nil {
		s.show("")
		return nil
	}
	if may := want == nil; may != s.clientsMayWrite() { // otherwise than when this primary opened
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if err := p.Admin().LetClientsWrite(ctx, may, lockWait); err != nil {
			return fmt.Errorf("change whether clients may write: %w", err)
		}
		s.Opened(may)
	}
	if want == nil {
		s.show("")
		return nil
	}
	if l.now == nil {
		l.now = s.begin(ctx, p, term, *want)
	}
	s.show(s.get().String())
	return nil
}

// show has the status say how far this node is.
func (s *Service) show(text string) {
	if len(text) > textBytesMax {
		text = strings.ToValidUTF8(text[:textBytesMax], "") + "…"
	}
	if s.node.Own().Follow != text {
		s.node.Show(text)
	}
}

func (s *Service) begin(ctx context.Context, p *mysqld.Process, term uint64, source cluster.Follow) *stretch {
	ctx, cancel := context.WithCancel(ctx)
	reading, finish := context.WithCancel(ctx)
	f := &stretch{process: p, term: term, source: source, finish: finish, end: cancel, ended: make(chan struct{})}
	name := s.node.Own().Name
	s.set(func(st *cluster.FollowStatus) {
		*st, s.answered = cluster.FollowStatus{Follow: &source, Node: name}, time.Time{}
	})
	s.logger.Info("following", "source", source.Source, "user", source.User)
	go func() {
		defer close(f.ended)
		defer finish()
		s.tryAll(ctx, reading, p, source)
	}()
	return f
}

// tryAll follows until reading ends, and tries again after each break. ctx ends all at once.
func (s *Service) tryAll(ctx, reading context.Context, p *mysqld.Process, source cluster.Follow) {
	c, pause := clock.Machine{}, againMin
	for {
		began := time.Now()
		err := s.once(ctx, reading, p, source)
		if reading.Err() != nil {
			return
		}
		if time.Since(began) > againMax {
			pause = againMin
		}
		before := s.get().Error
		said := brief(err)
		s.set(func(st *cluster.FollowStatus) { st.Error = said })
		if before != said {
			s.logger.Warn("following has stopped, and is tried again", "source", source.Source, "error", err)
		}
		s.node.Wake()
		if c.Wait(reading, pause, nil) != nil {
			return
		}
		pause = min(2*pause, againMax)
	}
}

// once follows until something fails, or reading ends: then what is under way is written.
func (s *Service) once(ctx, reading context.Context, p *mysqld.Process, f cluster.Follow) error {
	source, err := Open(f)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	sessions, err := p.OpenFollow()
	if err != nil {
		return err
	}
	defer func() { _ = sessions.Close() }()
	executed := func(ctx context.Context) (*gtid.Set, error) { return executedOf(ctx, p) }
	follower := New(Config{
		Dial: func(ctx context.Context, executed *gtid.Set) (Stream, error) {
			id, uuid := s.node.ReplicaName()
			stream, err := source.Dial(ctx, id, uuid, executed)
			if err == nil {
				context.AfterFunc(reading, func() { _ = stream.Close() })
			}
			return stream, err
		},
		Executed: executed, Sessions: sessions, Withheld: s.node.Withheld, Logger: s.logger,
	})
	before := s.get()
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { s.look(ctx, source, follower, executed, before) })
	defer looking.Wait()
	defer cancel()
	for {
		err := follower.Run(ctx)
		if !Conflict(err) || reading.Err() != nil {
			return err
		}
		s.set(func(st *cluster.FollowStatus) { st.Error = brief(err) })
		if err := clock.Sleep(ctx, clock.Machine{}, conflictPause); err != nil {
			return err
		}
	}
}

// brief is what all nodes are told of an error: not what the server says of a row, which may be anything.
func brief(err error) string {
	server, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return err.Error()
	}
	return strings.Replace(err.Error(), server.Error(), fmt.Sprintf("error %d, see the agent's log there", server.Number), 1)
}

// look keeps the status of what is followed.
func (s *Service) look(ctx context.Context, source *Source, f *Follower, executed func(context.Context) (*gtid.Set, error), before cluster.FollowStatus) {
	c, last := clock.Machine{}, uint64(0)
	for c.Wait(ctx, lookEvery, nil) == nil {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		there, err := source.Executed(ctx)
		here, errHere := executed(ctx)
		cancel()
		if err := errors.Join(err, errHere); err != nil {
			continue // the follower says why, if it lasts
		}
		there.Subtract(here)
		p := f.Progress()
		s.set(func(st *cluster.FollowStatus) {
			s.answered = time.Now()
			// How far behind it is shows once something was written since this began.
			st.Left, st.Seconds = there.Count(), 0
			st.Known = st.Left == 0 || !p.Committed.IsZero()
			if st.Left == 0 || p.Transactions > last { // what was in the way is no more
				st.Error = ""
			}
			if st.Left > 0 && !p.Committed.IsZero() {
				st.Seconds = max(0, time.Since(p.Committed).Seconds())
			}
			st.Written, st.LeftOut = before.Written+p.Transactions, before.LeftOut+p.LeftOut
		})
		last = p.Transactions
		s.node.Wake()
	}
}
