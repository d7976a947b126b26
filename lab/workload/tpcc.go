package workload

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/mysql/rows"
	"github.com/quorate/quorate/lab/peers"
)

// TPCCName is the name of the workload in plans.
const TPCCName = "tpcc"

// The sizes of a warehouse. The standard has 10 districts, with 3000 customers and
// as many orders each, and 100 000 items.
const (
	tpccDistricts = 10
	tpccCustomers = 300 // per district; as many first orders
	tpccItems     = 10_000
	tpccOpen      = tpccCustomers * 3 / 10 // so many of the first orders are not delivered yet
	tpccLinesMin  = 5
	tpccLinesMax  = 15
)

// TPCC is one set of tables, and what clients were told about their orders. Only one of its methods may run at a time.
type TPCC struct {
	Dial       Dial
	Warehouses int

	// acknowledged and unknown are the outcomes of orders since Prepare.
	acknowledged, unknown atomic.Int64
}

// Run runs the mix. Threads are spread over the endpoints.
func (t *TPCC) Run(ctx context.Context, at []peers.Endpoint, l Load) (Sample, error) {
	open := func(e peers.Endpoint) (*sql.DB, error) { return Open(t.Dial, e) }
	return runTerminals(ctx, TPCCName, at, l, open, func(m *terminal) {
		m.tpcc = t
		m.step = func(ctx context.Context) error { return m.transact(ctx, m.next()) }
	})
}

// runTerminals runs a load from this process. Each thread is a terminal; setup tells the terminal what to do.
func runTerminals(ctx context.Context, name string, at []peers.Endpoint, l Load, open func(peers.Endpoint) (*sql.DB, error), setup func(*terminal)) (Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Duration+runSlack)
	defer cancel()
	var pools []*sql.DB
	defer func() {
		for _, db := range pools {
			_ = db.Close() // no transaction is open
		}
	}()
	for _, e := range at {
		db, err := open(e)
		if err != nil {
			return Sample{}, err
		}
		db.SetMaxIdleConns(l.Threads)
		pools = append(pools, db)
	}
	if len(pools) == 0 {
		return Sample{}, errors.New("workload: nobody takes clients")
	}
	terminals := make([]*terminal, l.Threads)
	cpu := selfCPU()
	began := time.Now()
	running, ctx := errgroup.WithContext(ctx)
	for i := range terminals {
		m := &terminal{pool: pools[i%len(pools)], random: rand.New(rand.NewPCG(1, uint64(i)))}
		setup(m)
		terminals[i] = m
		running.Go(func() error { return m.run(ctx, began, l) })
	}
	if err := running.Wait(); err != nil {
		return Sample{}, fmt.Errorf("run %s with %d threads: %w", name, l.Threads, err)
	}
	s, err := sampleOf(terminals, time.Since(began))
	s.ClientCPU = selfCPU() - cpu
	if err != nil {
		return s, fmt.Errorf("run %s: %w", name, err)
	}
	return s, nil
}

// selfCPU is the CPU time of this process.
func selfCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0 // it cannot fail (getrusage(2))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sampleOf adds up the counts of the terminals.
func sampleOf(terminals []*terminal, took time.Duration) (Sample, error) {
	s := Sample{Seconds: took.Seconds(), PerSecond: make([]float64, int(took.Seconds()))}
	times, counts := make([]float64, timesMax), make([]float64, timesMax)
	for i := range times {
		times[i] = ms(time.Microsecond) * math.Pow(timesApart, float64(i))
	}
	queries := int64(0)
	for _, m := range terminals {
		s.Errors, s.Reconnects, queries = s.Errors+m.errors, s.Reconnects+m.reconnects, queries+m.queries
		for i, n := range m.times {
			counts[i] += n
			s.Transactions += int64(n)
		}
		for i, n := range m.perSecond {
			if i < len(s.PerSecond) { // the last second is not whole
				s.PerSecond[i] += n
			}
		}
	}
	if s.Transactions == 0 {
		return s, fmt.Errorf("no transaction in %.1f s, %d errors", s.Seconds, s.Errors)
	}
	s.P50MS, s.P95MS, s.P99MS = percentile(times, counts, 50), percentile(times, counts, 95), percentile(times, counts, 99)
	s.TPS, s.QPS = float64(s.Transactions)/s.Seconds, float64(queries)/s.Seconds
	return s, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// terminal is one client.
type terminal struct {
	tpcc   *TPCC
	pool   *sql.DB
	conn   *sql.Conn
	random *rand.Rand
	step   func(context.Context) error // one transaction

	queries, errors, reconnects int64
	perSecond                   []float64         // transactions that ended in each second
	times                       [timesMax]float64 // how many transactions took how long: bucket i ends at 1 µs * timesApart^i
}

// Buckets of times, like those of sysbench's histogram: 2 % apart, up to hours.
const (
	timesMax   = 1200
	timesApart = 1.02
)

// count notes a transaction that ended.
func (m *terminal) count(at, took time.Duration) {
	bucket := int(math.Ceil(math.Log(max(1, float64(took.Microseconds()))) / math.Log(timesApart)))
	m.times[min(bucket, timesMax-1)]++
	second := int(at.Seconds())
	for len(m.perSecond) <= second {
		m.perSecond = append(m.perSecond, 0)
	}
	m.perSecond[second]++
}

// errAborted: a transaction rolled itself back, as one of a hundred new orders does by the standard.
var errAborted = errors.New("the item does not exist")

// run runs transactions for the load's duration.
func (m *terminal) run(ctx context.Context, began time.Time, l Load) error {
	defer m.disconnect()
	for time.Since(began) < l.Duration {
		start := time.Now()
		err := m.step(ctx)
		switch {
		case err == nil:
			m.count(time.Since(began), time.Since(start))
		case ctx.Err() != nil:
			return ctx.Err()
		case l.Tolerant || again(err):
			m.errors++
		default:
			return err
		}
	}
	return nil
}

// next chooses the next transaction as sysbench-tpcc does: of 23, 10 are new orders, 10 are payments, and one is each of
// the others.
func (m *terminal) next() func(context.Context) error {
	switch n := m.random.IntN(23); {
	case n < 10:
		return m.newOrder
	case n < 20:
		return m.payment
	case n == 20:
		return m.orderStatus
	case n == 21:
		return m.delivery
	}
	return m.stockLevel
}

// transact runs one transaction on the terminal's connection. If it fails, it does not stay open.
func (m *terminal) transact(ctx context.Context, body func(context.Context) error) (err error) {
	if err := m.connect(ctx); err != nil {
		return err
	}
	if err = m.exec(ctx, "BEGIN"); err == nil {
		err = body(ctx)
	}
	if err == nil {
		return nil
	}
	if _, rollback := m.conn.ExecContext(ctx, "ROLLBACK"); rollback != nil {
		m.disconnect()
		m.reconnects++
	}
	if errors.Is(err, errAborted) {
		return nil // a rollback is the outcome that it should have
	}
	return err
}

// connect opens the connection, if there is none.
func (m *terminal) connect(ctx context.Context) (err error) {
	if m.conn != nil {
		return nil
	}
	if m.conn, err = m.pool.Conn(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// disconnect ends the connection, and with it an open transaction.
func (m *terminal) disconnect() {
	if m.conn == nil {
		return
	}
	_ = m.conn.Raw(func(any) error { return driver.ErrBadConn }) // not back into the pool
	_ = m.conn.Close()
	m.conn = nil
}

// again says that a client tries another transaction after this error, like sysbench (ignoredErrors).
func again(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return slices.Contains(strings.Split(ignoredErrors, ","), fmt.Sprint(e.Number))
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF)
}

func (m *terminal) exec(ctx context.Context, query string, args ...any) error {
	m.queries++
	if _, err := m.conn.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("%s: %w", firstLine(query), err)
	}
	return nil
}

// row reads one row.
func (m *terminal) row(ctx context.Context, query string, args []any, dest ...any) error {
	m.queries++
	if err := m.conn.QueryRowContext(ctx, query, args...).Scan(dest...); err != nil {
		return fmt.Errorf("%s: %w", firstLine(query), err)
	}
	return nil
}

// ints reads rows of one number.
func (m *terminal) ints(ctx context.Context, query string, args ...any) (all []int, err error) {
	m.queries++
	all, err = rows.Column[int](ctx, m.conn, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", firstLine(query), err)
	}
	return all, nil
}

func firstLine(query string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(query), "\n")
	return first
}

// commit ends a transaction.
func (m *terminal) commit(ctx context.Context) error { return m.exec(ctx, "COMMIT") }

// The random choices of the standard, clauses 2.1.6 and 4.3.2.

func (m *terminal) between(low, high int) int { return low + m.random.IntN(high-low+1) }

// uneven is NURand of the standard: a random choice that prefers some values.
func (m *terminal) uneven(a, low, high int) int {
	return (m.between(0, a)|m.between(low, high))%(high-low+1) + low
}

func (m *terminal) warehouse() int { return m.between(1, m.tpcc.Warehouses) }
func (m *terminal) district() int  { return m.between(1, tpccDistricts) }
func (m *terminal) customer() int  { return m.uneven(127, 1, tpccCustomers) }
func (m *terminal) item() int      { return m.uneven(1023, 1, tpccItems) }
func (m *terminal) lastName() string {
	return tpccLastName(m.uneven(127, 0, tpccCustomers-1))
}

// other returns a warehouse that is not w, if there is one.
func (m *terminal) other(w int) int {
	if m.tpcc.Warehouses == 1 {
		return w
	}
	n := m.between(1, m.tpcc.Warehouses-1)
	if n >= w {
		n++
	}
	return n
}

// tpccLastName makes a name of the three digits of n.
func tpccLastName(n int) string {
	syllables := [...]string{"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"}
	return syllables[n/100%10] + syllables[n/10%10] + syllables[n%10]
}
