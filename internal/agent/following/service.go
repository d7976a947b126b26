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
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/follow"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/sys/clock"
	"github.com/quorate/quorate/internal/sys/metrics"
)

const (
	// lookEvery is how often Run looks whether this node is to follow, if nothing wakes it.
	lookEvery = 500 * time.Millisecond
	// askTimeout bounds a change of who may write, and a question to the source.
	askTimeout = 5 * time.Second
	// againMin and againMax are the pauses before the source is tried again.
	againMin = time.Second
	againMax = 15 * time.Second
	// conflictPause is the pause after a conflict of two transactions, or of a reader and a transaction.
	conflictPause = 200 * time.Millisecond
	// lockWait is how long a change of who may write waits for statements under way: a node that steps down waits for that change.
	lockWait = time.Second
	// answersWithin is how old the source's last answer may be: an older one says nothing of the lag.
	answersWithin = 10 * time.Second
	// drainMax bounds the wait for transactions that are under way when the following ends.
	drainMax = 10 * time.Second
	// textBytesMax bounds what the status says of the following.
	textBytesMax = 500
	// unheardMax is for how long a site's node may have no majority before another node is followed.
	unheardMax = 10 * time.Second
)

// Node is the node around a Service.
type Node interface {
	// Committed returns the source of the cluster by what is committed here, nil = none, and the version of the cluster state.
	Committed() (*cluster.Follow, uint64)
	// State is the whole of that state. The caller must not change it.
	State() cluster.State
	// SiteAccess is how the other site is reached, by this node's configuration; Site "" = there is none.
	SiteAccess() cluster.Follow
	// Cluster is the cluster's name. GTIDs are the transactions that are committed here, and those of them that are
	// purged.
	Cluster() string
	GTIDs() (executed, purged *gtid.Set)
	// Serving returns the mysqld of a primary that clients reach, and its term; nil = this node is none.
	Serving() (*mysqld.Process, uint64)
	// Own is this node's status. Show takes a sentence for it; "" = it follows nobody.
	Own() status.Node
	Show(text string)
	// Nodes are what all nodes of the cluster said last of themselves. ShowHeard puts into this node's status what
	// the other site was heard to have; nil = nothing is known. SiteHeard and WriteSiteHeard keep that on this node's
	// disk.
	Nodes() []status.Node
	ShowHeard(h *cluster.SiteHeard)
	SiteHeard() (cluster.SiteHeard, error)
	WriteSiteHeard(h cluster.SiteHeard) error
	// Changed returns a channel that is closed once something changes, such as the cluster state. Wake closes it.
	Changed() <-chan struct{}
	Wake()
	// ReplicaName is the name of the cluster's primary among the source's replicas. It is the same on each node, so
	// that the source ends the connection of a former primary.
	ReplicaName() (serverID uint32, uuid string)
}

// Requests is where changes of the cluster state are committed, and requests of the other site are carried out.
type Requests interface {
	ChangeState(ctx context.Context, by string, c cluster.Change) (operate.Done, error)
	Serve(ctx context.Context, r control.Request) control.Answer
	// Barrier returns once this node knows all that was committed anywhere before.
	Barrier(ctx context.Context) error
	// ByItself names this node as the author of what no operator has asked for.
	ByItself() string
}

// Service has a node follow the source of the cluster while it is the primary, and carries out requests about that. Make
// one with NewService.
type Service struct {
	node     Node
	requests Requests
	logger   *slog.Logger

	mu     sync.Mutex
	status cluster.FollowStatus
	// answered is when the source said last what it has. stopped says that the last try ended at a transaction that
	// can never be carried over.
	answered time.Time
	stopped  bool
	// doors are who may write to this primary's mysqld, as far as that is known.
	doors Doors
	// heard is what a primary of this site has heard the other site to have, ballot is the newest ballot that was
	// seen there. fenceError is why a site that is to be closed is not closed yet.
	heard      cluster.SiteHeard
	ballot     seenBallot
	fenceError string

	// The cutover under way holds cutting.
	cutting sync.Mutex
}

// NewService returns the Service of a node. It starts nothing.
func NewService(node Node, requests Requests, logger *slog.Logger) *Service {
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
	state := s.node.State()
	site := state.Site
	m := []metrics.Sample{metrics.Bool("quorate_follow", want != nil), metrics.Bool("quorate_cutover_source_closed", state.Closing != nil), metrics.Bool("quorate_site_not_closed", site != nil && site.Fence),
		metrics.Bool("quorate_site_closed", want != nil && want.Token != "")}
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

// Doors are who may write to the mysqld of an Admin, by a cluster state. The zero value = it is not known.
type Doors struct {
	Admin   *mysqld.Admin
	Writers mysqld.Writers
	// Token is the token of the other site's request because of which nobody may write.
	Token string
}

// DoorsOf are the doors that the cluster state asks for. f is what the cluster follows.
func DoorsOf(admin *mysqld.Admin, f *cluster.Follow) Doors {
	switch {
	case f == nil:
		return Doors{Admin: admin, Writers: mysqld.Everybody}
	case f.Token != "":
		return Doors{Admin: admin, Writers: mysqld.Nobody, Token: f.Token}
	}
	return Doors{Admin: admin, Writers: mysqld.Admins}
}

// Opened notes who may write, once that is so. Before a change, note the zero value: it is not known then.
func (s *Service) Opened(d Doors) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doors = d
}

// OpenWrites calls open, which opens a primary's mysqld, with the writers that the cluster state allows.
func (s *Service) OpenWrites(admin *mysqld.Admin, open func(mysqld.Writers) error) error {
	s.Opened(Doors{})
	f, _ := s.node.Committed()
	doors := DoorsOf(admin, f)
	err := open(doors.Writers)
	if err == nil && doors.Writers != mysqld.Nobody { // change looks once more before it says so
		s.Opened(doors)
	}
	return err
}

func (s *Service) opened() Doors {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doors
}

// awaitDoors waits until are returns true for the doors of this primary; false = ctx has ended before.
func (s *Service) awaitDoors(ctx context.Context, are func(Doors) bool) bool {
	s.node.Wake()
	for {
		if p, _ := s.node.Serving(); p != nil {
			if d := s.opened(); d.Admin == p.Admin() && are(d) {
				return true
			}
		}
		select {
		case <-s.node.Changed():
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
}

// stretch is one stretch of following: of one source, by one mysqld, in one term.
type stretch struct {
	process *mysqld.Process
	term    uint64
	source  cluster.Follow
	// finish has it stop reading, and complete the transactions under way; end ends it at once.
	finish, end context.CancelFunc
	ended       chan struct{}
}

// loop is what Run remembers. Only Run uses it.
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
			s.logger.Warn("the cluster does not follow its source as it should", "error", err)
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

// finish is stop after the transactions under way are complete. They are not committed in their order, so without
// that one may be missing that came before another that is here.
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

// keep does what the cluster state says: first about who may write, then about what is followed.
func (s *Service) keep(ctx context.Context, l *loop) error {
	want, _ := s.node.Committed()
	p, term := s.node.Serving()
	if n := l.now; n != nil && (p == nil || want == nil || n.process != p || n.term != term || n.source != *want) {
		if n.process == p && n.term == term {
			l.finish(ctx)
		}
		l.stop()
		s.set(func(st *cluster.FollowStatus) { *st = cluster.FollowStatus{} })
		want, _ = s.node.Committed() // that may have taken long
		p, term = s.node.Serving()
	}
	if p == nil {
		s.show("")
		return nil
	}
	if doors := DoorsOf(p.Admin(), want); doors != s.opened() { // the state has changed since this primary opened
		if err := s.change(ctx, p, doors); err != nil {
			return fmt.Errorf("change who may write: %w", err)
		}
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

// change has a primary's mysqld opened or closed as the cluster state says. It asks once more whether the state still
// says that, while nobody else can change mysqld.
func (s *Service) change(ctx context.Context, p *mysqld.Process, doors Doors) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s.Opened(Doors{})
	still := func() bool {
		want, _ := s.node.Committed()
		return doors == DoorsOf(p.Admin(), want)
	}
	if err := p.Admin().LetWrite(ctx, doors.Writers, lockWait, still); err != nil {
		return err
	}
	if doors.Writers == mysqld.Nobody {
		// Read-only stops neither an XA PREPARE nor an XA COMMIT. But from here on no session can begin an XA
		// transaction that writes.
		if _, err := primary.EndXA(ctx, p.Admin(), clock.Machine{}); err != nil {
			return err
		}
		if err := noPreparedXA(ctx, p.Admin()); err != nil {
			return err
		}
	}
	s.Opened(doors)
	return nil
}

// noPreparedXA refuses to close a mysqld in which an XA COMMIT would still write.
func noPreparedXA(ctx context.Context, admin *mysqld.Admin) error {
	n, err := admin.PendingXA(ctx)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d XA transactions are prepared: end them first (XA RECOVER)", n)
	}
	return err
}

// show has the status say how far the following is.
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
		*st, s.answered, s.stopped = cluster.FollowStatus{Follow: &source, Node: name}, time.Time{}, false
	})
	s.logger.Info("following", "source", source.String())
	go func() {
		defer close(f.ended)
		defer finish()
		s.tryAll(ctx, reading, p, source)
	}()
	return f
}

// tryAll follows until reading ends, and tries again after each break. The end of ctx ends everything at once.
func (s *Service) tryAll(ctx, reading context.Context, p *mysqld.Process, source cluster.Follow) {
	c, pause := clock.Machine{}, againMin
	for n := 0; ; n++ { // a site is tried at its next node
		began := time.Now()
		err := s.once(ctx, reading, p, source, n)
		if reading.Err() != nil {
			return
		}
		if time.Since(began) > againMax {
			pause = againMin
		}
		before := s.get().Error
		said := brief(err)
		_, never := errors.AsType[*follow.UnsupportedError](err)
		s.set(func(st *cluster.FollowStatus) { st.Error, s.stopped = said, never })
		if before != said {
			s.logger.Warn("following the source has stopped: trying again", "source", source.String(), "error", err)
		}
		s.node.Wake()
		switch {
		case source.Token != "": // the other site may take over at any moment
			pause = conflictPause
		case source.Site != "":
			pause = againMin
		}
		if c.Wait(reading, pause, nil) != nil {
			return
		}
		pause = min(2*pause, againMax)
	}
}

// once follows until something fails, or reading ends: then the transactions under way are completed. n counts the
// attempts.
func (s *Service) once(ctx, reading context.Context, p *mysqld.Process, f cluster.Follow, n int) error {
	access, err := s.access(f)
	if err != nil {
		return err
	}
	source, err := Open(access.At(n))
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
	if f.Site != "" {
		if err := s.beforeSite(ctx, p, source, f); err != nil {
			return err
		}
	}
	reading, lose := context.WithCancelCause(reading)
	defer lose(nil)
	follower := New(Config{
		Dial: func(ctx context.Context, executed *gtid.Set) (Stream, error) {
			id, uuid := s.node.ReplicaName()
			return source.Dial(ctx, id, uuid, executed)
		},
		Executed: executed, Sessions: sessions, Withheld: func(q binlog.Query) bool { return mysqld.Bypasses(q, f.Site != "") }, Own: ownSchema(f), Logger: s.logger,
	})
	before := s.get()
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { s.look(ctx, source, follower, executed, before, lose) })
	defer looking.Wait()
	defer cancel()
	for {
		err := follower.Run(ctx, reading)
		if unheard := context.Cause(reading); errors.Is(unheard, errUnheard) {
			return unheard
		}
		if !Conflict(err) || reading.Err() != nil {
			return err
		}
		s.set(func(st *cluster.FollowStatus) { st.Error = brief(err) })
		if err := clock.Sleep(ctx, clock.Machine{}, conflictPause); err != nil {
			return err
		}
	}
}

// brief is what all nodes are told of an error. It leaves out the server's own text, which may quote a row.
func brief(err error) string {
	server, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return err.Error()
	}
	return strings.Replace(err.Error(), server.Error(), fmt.Sprintf("error %d, see the agent's log there", server.Number), 1)
}

// look keeps the status of what is followed. It ends the reading of a site's node that has no majority.
func (s *Service) look(ctx context.Context, source *Source, f *Follower, executed func(context.Context) (*gtid.Set, error), before cluster.FollowStatus, lose context.CancelCauseFunc) {
	c, last, answered := clock.Machine{}, uint64(0), time.Now()
	earlier := &gtid.Set{} // what was here at the last look: the source has all of it, unless somebody has written here
	for c.Wait(ctx, lookEvery, nil) == nil {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		asked := time.Now()
		there, err := source.Executed(ctx)
		here, errHere := executed(ctx)
		cancel()
		if err != nil && source.site != "" && time.Since(answered) > unheardMax {
			lose(fmt.Errorf("%w: %w", errUnheard, err))
		}
		if err := errors.Join(err, errHere); err != nil {
			continue // the follower says why, if it lasts
		}
		answered = time.Now()
		own := error(nil)
		if source.site != "" {
			s.hears(there, asked)
			own = s.notThere(earlier, there)
		}
		earlier = here.Clone()
		there.Subtract(here)
		p := f.Progress()
		s.set(func(st *cluster.FollowStatus) {
			s.answered = time.Now()
			// How far behind this node is, is known once a transaction was written since this began.
			st.Left, st.Seconds = there.Count(), 0
			st.Known = st.Left == 0 || !p.Committed.IsZero()
			switch {
			case own != nil: // the following goes on, but could not begin again
				st.Error = own.Error()
			case st.Left == 0 || p.Transactions > last: // what was in the way is gone
				st.Error, s.stopped = "", false
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
