package workload

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/testkit/ledger"
	"github.com/quorate/quorate/lab/peers"
)

const (
	// ProbeEvery is how often the prober inserts.
	ProbeEvery = 10 * time.Millisecond
	// AttemptTimeout bounds an attempt and each connection, as a sane application does.
	AttemptTimeout = time.Second
	// workersDefault is large enough for an attempt every 25 ms even if all workers hang.
	workersDefault = 40
	// backOffAfter: when nothing was acknowledged for so long, there is only one attempt every backOffEvery. An attempt
	// that hangs stays a session of the server after the client has given up. An application that goes on as fast takes
	// all sessions of the server in half a minute: then even the members cannot connect to each other, and the outage
	// gets longer.
	backOffAfter = 2 * time.Second
	backOffEvery = 100 * time.Millisecond
	// attemptsMax bounds the ledger: half an hour.
	attemptsMax = 200_000
)

// ProbeTable is the table into which the prober writes.
const ProbeTable = "probe"

// ErrLedgerFull: the prober has made as many attempts as it remembers.
var ErrLedgerFull = errors.New("workload: the prober's ledger is full")

// Outcome is what a client knows of an insert.
type Outcome = ledger.Outcome

// The outcomes, as the ledger of demo and tests has them.
const (
	Unknown      = ledger.Unknown
	Acknowledged = ledger.Acknowledged
	Failed       = ledger.Failed
)

// Attempt is one insert.
type Attempt struct {
	ID int64
	// At is when the attempt began, since the prober's start.
	At, Latency time.Duration
	Outcome     Outcome
	Node        string // the node whose endpoint was tried last
	Err         string // why it was not acknowledged
}

// Dial is how a client connects.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// Prober inserts. It runs once.
type Prober struct {
	endpoints []peers.Endpoint
	pools     []*sql.DB
	began     time.Time

	nextID    atomic.Int64
	preferred atomic.Int64 // index of the endpoint that worked last
	lastAck   atomic.Int64 // the time of the last acknowledgement, in ns since began

	mu       sync.Mutex
	attempts []Attempt
}

// NewProber returns a prober that has not begun. It tries the endpoint first before the others.
func NewProber(dial Dial, endpoints []peers.Endpoint, first peers.Endpoint) (*Prober, error) {
	p := &Prober{endpoints: endpoints}
	for i, e := range endpoints {
		if e.Addr == first.Addr {
			p.preferred.Store(int64(i))
		}
		db, err := Open(dial, e)
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		db.SetMaxIdleConns(workersDefault)
		p.pools = append(p.pools, db)
	}
	if len(p.pools) == 0 {
		return nil, errors.New("workload: a prober needs an endpoint")
	}
	return p, nil
}

// Open returns a pool for an endpoint that dials as told and neither logs nor retries.
func Open(dial Dial, e peers.Endpoint) (*sql.DB, error) { return openTLS(dial, e, "") }

// openTLS is Open with the driver's name for how TLS is used.
func openTLS(dial Dial, e peers.Endpoint, tls string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(e.DSN())
	if err != nil {
		return nil, fmt.Errorf("use endpoint of node %s: %w", e.Node, err)
	}
	cfg.Logger = &mysql.NopLogger{}
	cfg.TLSConfig = tls
	cfg.InterpolateParams = true // one round trip for each statement
	cfg.MaxAllowedPacket = 64 << 20
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) { return dial(ctx, network, addr) }
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("use endpoint of node %s: %w", e.Node, err)
	}
	return sql.OpenDB(connector), nil
}

func (p *Prober) close() error {
	var errs []error
	for _, db := range p.pools {
		errs = append(errs, db.Close())
	}
	return errors.Join(errs...)
}

// CreateProbeTable makes the empty table.
func CreateProbeTable(ctx context.Context, dial Dial, at peers.Endpoint) error {
	db, err := Open(dial, at)
	if err != nil {
		return err
	}
	defer db.Close() // nothing to lose
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+ProbeTable+" (id BIGINT NOT NULL PRIMARY KEY, payload CHAR(64) NOT NULL) ENGINE=InnoDB")
	if err != nil {
		return fmt.Errorf("create the prober's table: %w", err)
	}
	return nil
}

// Run probes until ctx is done and returns after every attempt under way has ended, at most
// AttemptTimeout later.
func (p *Prober) Run(ctx context.Context) error {
	p.mu.Lock()
	p.began = time.Now()
	p.mu.Unlock()
	turns := make(chan struct{}) // received by an idle worker: they take turns
	var workers sync.WaitGroup
	for range workersDefault {
		workers.Go(func() { p.work(turns) })
	}
	tick := time.NewTicker(ProbeEvery)
	defer tick.Stop()
	err := p.drive(ctx, turns, tick.C)
	close(turns)
	workers.Wait()
	_ = p.close() // closes sockets: the outcomes are known
	return err
}

func (p *Prober) drive(ctx context.Context, turns chan<- struct{}, tick <-chan time.Time) error {
	var last time.Time // when the last attempt began
	for n := 0; n < attemptsMax; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick:
			if p.SinceAck() > backOffAfter && now.Sub(last) < backOffEvery {
				continue
			}
			last, n = now, n+1
		}
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
	}
	return ErrLedgerFull
}

// worker is a client. It takes its connection from the endpoint's pool, as applications
// do: the pool notices a dead idle connection before anything is sent on it. With
// connections of their own, each worker would lose an attempt to a dead connection, and no
// system could be back before every worker has lost one.
type worker struct {
	*Prober
	at int // the endpoint of the next try
}

func (p *Prober) work(turns <-chan struct{}) {
	w := &worker{Prober: p}
	for range turns {
		a := w.attempt()
		p.mu.Lock()
		p.attempts = append(p.attempts, a)
		p.mu.Unlock()
	}
}

// attempt makes one attempt. It does not use the caller's context, because an attempt that was begun must come to its
// end.
func (w *worker) attempt() Attempt {
	ctx, cancel := context.WithTimeout(context.Background(), AttemptTimeout)
	defer cancel()
	a := Attempt{ID: w.nextID.Add(1), At: time.Since(w.began), Outcome: Failed}
	w.at = int(w.preferred.Load())
	for range w.endpoints {
		err := w.try(ctx, a.ID)
		a.Outcome, a.Node, a.Err = decide(err), w.endpoints[w.at].Node, errorText(err)
		if a.Outcome == Acknowledged {
			now := time.Since(w.began)
			a.Latency = now - a.At
			w.preferred.Store(int64(w.at))
			w.lastAck.Store(int64(now))
			return a
		}
		was := int64(w.at)
		w.at = (w.at + 1) % len(w.endpoints)
		w.preferred.CompareAndSwap(was, int64(w.at)) // the others need not find out by themselves
		if a.Outcome == Unknown || ctx.Err() != nil {
			break
		}
	}
	a.Latency = time.Since(w.began) - a.At
	return a
}

// try inserts at the present endpoint, once.
func (w *worker) try(ctx context.Context, id int64) error {
	conn, err := w.pools[w.at].Conn(ctx)
	if err != nil {
		return notSent{err}
	}
	_, err = conn.ExecContext(ctx, "INSERT INTO "+ProbeTable+" VALUES (?, ?)", id, payload())
	if err != nil { // the next try at this endpoint uses a new connection
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = conn.Close() // back into the pool; the outcome is known
	return err
}

func payload() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails (Go 1.24)
	return hex.EncodeToString(b[:])
}

// notSent is an error before the INSERT.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

// decide says what the answer to an INSERT in a transaction of its own means.
func decide(err error) Outcome {
	if _, ok := errors.AsType[notSent](err); ok {
		return Failed
	}
	return ledger.OutcomeOf(err)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return fmt.Sprintf("error %d", refused.Number)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return err.Error()
}

// Began is when Run began.
func (p *Prober) Began() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.began
}

// SinceAck is the time since the last acknowledgement, or since the prober began if there was none.
func (p *Prober) SinceAck() time.Duration {
	return time.Since(p.Began()) - time.Duration(p.lastAck.Load())
}

// Timeline returns the attempts that have ended so far, in the order in which they began.
func (p *Prober) Timeline() Timeline {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.attempts)
	slices.SortFunc(all, func(a, b Attempt) int { return cmp.Compare(a.At, b.At) })
	return all
}
