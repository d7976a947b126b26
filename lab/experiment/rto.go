package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/lab/check"
	"github.com/quorate/quorate/lab/fault"
	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/result"
	"github.com/quorate/quorate/lab/workload"
)

const (
	// quietFor is how long all is well before the fault. loadedFor is the same beside sysbench: a dip is compared
	// with the median of that time.
	quietFor  = 5 * time.Second
	loadedFor = 10 * time.Second
	// watchEvery is the pause between questions whether the system misses a node.
	watchEvery = 50 * time.Millisecond
	// scriptWait is how long the operator's script waits for an acknowledgement before it fails over.
	scriptWait = 3 * time.Second
	// restoreWait bounds the wait for all nodes to be in again.
	restoreWait = 3 * time.Minute
	// calmFor is how long the cell watches after that.
	calmFor = 5 * time.Second
	// probeEvery is the interval of the prober's series.
	probeEvery = 100 * time.Millisecond
)

// rto is a cell with a fault in the middle.
type rto struct {
	*cell
	action, victim  string
	onPrimary, city bool          // the fault hits the primary; its city as a whole
	at, mended      time.Duration // of the fault and of its end, on the prober's clock
	down            bool          // the victim was killed or stopped, and must be started
	gone            bool          // the city is lost, for good
	script          time.Duration // when the operator's script began
	steps           []string
}

func (c *cell) rto(ctx context.Context) error {
	r := &rto{cell: c}
	if err := r.choose(ctx); err != nil {
		return err
	}
	writers, err := c.writers(ctx)
	if err != nil {
		return err
	}
	if r.prober, err = workload.NewProber(c.dial, c.system.Endpoints(), writers[0]); err != nil {
		return err
	}
	probeCtx, stopProbe := context.WithCancel(ctx)
	defer stopProbe()
	var beside sync.WaitGroup
	var probeErr, loadErr error
	beside.Go(func() { probeErr = r.prober.Run(probeCtx) })
	loadCtx, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	before := quietFor
	if c.step.Threads > 0 {
		before = loadedFor
		beside.Go(func() { loadErr = r.load(loadCtx, writers, before+c.step.Duration) })
	}
	err = r.breakAndRestore(ctx, before)
	if err != nil {
		stopLoad()
	}
	stopProbe()
	beside.Wait()
	r.record()
	if err := errors.Join(err, probeErr, loadErr); err != nil {
		return err
	}
	v, err := c.judge(ctx, r.prober.Timeline())
	if v.Lost > 0 {
		c.set(result.LostMS, ms(max(r.at-v.LostSince, 0)))
	}
	return err
}

// choose reads the workload's name: action-primary, action-secondary or action-city.
func (r *rto) choose(ctx context.Context) error {
	action, whom, _ := strings.Cut(r.step.Workload, "-")
	r.action, r.onPrimary, r.city = action, whom != "secondary", whom == "city"
	if r.step.System != peers.Quorate && (action == "crash" || action == "switchover" || r.city) {
		return fmt.Errorf("%w: %s is quorate's", errNotForIt, r.step.Workload)
	}
	primary, others, err := r.roles(ctx)
	if err != nil {
		return err
	}
	r.victim = primary
	if !r.onPrimary {
		if len(others) == 0 {
			return fmt.Errorf("%w: %s has no secondary", errNotForIt, r.step.System)
		}
		r.victim = others[0]
	}
	return nil
}

// roles returns the node that clients write to, and the others, without routers.
func (c *cell) roles(ctx context.Context) (primary string, others []string, err error) {
	primary, err = c.system.Primary(ctx)
	if err != nil {
		return "", nil, err
	}
	nodes := c.system.Nodes()
	if primary == "" { // several nodes take writes
		primary = nodes[0].Name
	}
	for _, n := range nodes {
		if n.Name != primary && n.Kind != "router" && n.Kind != "learner" {
			others = append(others, n.Name)
		}
	}
	return primary, others, nil
}

// load is sysbench beside the prober.
func (r *rto) load(ctx context.Context, writers []peers.Endpoint, duration time.Duration) error {
	sample, err := r.bench.Run(ctx, writers, workload.Load{Script: "oltp_read_write", Threads: r.step.Threads, Duration: duration, Tolerant: true})
	if err != nil {
		return err
	}
	r.recordSample(sample)
	return nil
}

// breakAndRestore injects the fault, ends it, and watches until the cell's time is over.
func (r *rto) breakAndRestore(ctx context.Context, before time.Duration) error {
	if err := sleep(ctx, before); err != nil {
		return err
	}
	r.at = time.Since(r.prober.Began())
	end := time.Now().Add(r.step.Duration)
	heal, err := r.inject(ctx)
	if err != nil {
		return fmt.Errorf("%s of node %s: %w", r.action, r.victim, err)
	}
	watchCtx, stopWatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	var scriptErr error
	if !r.city { // only the operator notices that a city is lost
		watching.Go(func() { r.watch(watchCtx) })
	}
	if r.scripted() {
		watching.Go(func() { scriptErr = r.operate(watchCtx) })
	}
	err = nil
	if r.action != "restart" {
		err = sleep(ctx, r.step.Duration/2)
	}
	stopWatch()
	watching.Wait()
	if err := errors.Join(err, scriptErr); err != nil {
		return errors.Join(err, heal(ctx))
	}
	if err := r.restore(ctx, heal); err != nil {
		return err
	}
	return sleep(ctx, max(time.Until(end), calmFor))
}

// inject does the fault, and returns the function that ends it.
func (r *rto) inject(ctx context.Context) (heal func(context.Context) error, err error) {
	switch r.action {
	case "kill":
		if r.city {
			err = r.loseCity(ctx)
			break
		}
		r.event("kill -9 " + r.victim)
		err = r.system.Kill(ctx, r.victim)
		r.down = true
	case "restart":
		r.event("stop " + r.victim)
		err = r.system.Stop(ctx, r.victim)
		r.down = true
	case "crash":
		r.event("kill -9 the server of " + r.victim)
		err = r.system.Crash(r.victim)
	case "switchover":
		r.event("switchover from " + r.victim)
		err = r.system.Switchover(ctx, r.city)
	case "freeze":
		r.event("freeze " + r.victim)
		err = r.system.Freeze(r.victim)
		heal = func(context.Context) error {
			if r.down {
				return nil // the script has killed it
			}
			return r.system.Thaw(r.victim)
		}
	default:
		f, err := fault.Network(r.action)
		if err != nil {
			return nil, err
		}
		r.event(r.action + " of " + r.victim)
		mend, err := f.Inject(r.network, r.victim)
		if err != nil {
			return nil, err
		}
		return func(context.Context) error { return mend() }, nil
	}
	if heal == nil {
		heal = func(context.Context) error { return nil }
	}
	return heal, err
}

// loseCity cuts the victim's city off from the other one, and kills all nodes there, for good. Clients are refused there
// at once: how long a client would wait for a silent address depends only on the client.
func (r *rto) loseCity(ctx context.Context) error {
	nodes := r.system.City(r.victim)
	r.event("lose " + strings.Join(nodes, ", ") + ", for good")
	r.gone = true
	cut, err := fault.Network("partition")
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if _, err := cut.Inject(r.network, node); err != nil {
			return err
		}
	}
	killing, ctx := errgroup.WithContext(ctx)
	for _, node := range nodes {
		killing.Go(func() error { return r.system.Kill(ctx, node) })
	}
	return killing.Wait()
}

// restore ends the fault and waits until all nodes are in.
func (r *rto) restore(ctx context.Context, heal func(context.Context) error) error {
	if r.gone {
		if err := r.system.WaitReady(ctx); err != nil {
			r.text(result.TextNotBack, "not: "+oneLine(err))
		}
		return nil
	}
	began := time.Now()
	r.mended = time.Since(r.prober.Began())
	if err := heal(ctx); err != nil {
		return err
	}
	what := "mend " + r.victim
	if r.down {
		what = "start " + r.victim
	}
	r.eventAt(r.mended, what)
	ctx, cancel := context.WithTimeout(ctx, restoreWait)
	defer cancel()
	if r.down {
		if err := r.system.Restart(ctx, r.victim); err != nil {
			r.text(result.TextNotBack, "not: "+oneLine(err))
			return nil // what the clients saw is still a result
		}
	}
	if err := r.allIn(ctx); err != nil {
		r.text(result.TextNotBack, "not: "+oneLine(err))
		return nil
	}
	r.set(result.RestoredMS, ms(time.Since(began)))
	r.event("all nodes are in")
	return nil
}

// allIn waits until the system is ready, and returns an error if a node does not run then: a group of those that run may
// be ready without it.
func (c *cell) allIn(ctx context.Context) error {
	if err := c.system.WaitReady(ctx); err != nil {
		return err
	}
	for _, n := range c.system.Nodes() {
		if len(n.Processes) == 0 {
			return fmt.Errorf("node %s does not run", n.Name)
		}
	}
	return nil
}

// watch notes when the system misses the victim.
func (r *rto) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		gone, err := r.system.Missed(ctx, r.victim)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if gone {
			r.set(result.DetectMS, ms(time.Since(r.prober.Began())-r.at))
			r.event("noticed")
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// scripted says whether an operator's script must fail over.
func (r *rto) scripted() bool {
	return r.gone || r.onPrimary && (r.step.System == peers.Async || r.step.System == peers.SemiSync)
}

// operate is an operator's script: see doc.go.
func (r *rto) operate(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for r.prober.SinceAck() < scriptWait {
		select {
		case <-ctx.Done():
			return nil // there was no need
		case <-tick.C:
		}
	}
	r.script = time.Since(r.prober.Began())
	r.set(result.DetectMS, ms(r.script-r.at))
	r.event("the script begins")
	// The script finishes what it has begun, even if the fault ends meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreWait)
	defer cancel()
	if err := r.system.Kill(ctx, r.victim); err != nil {
		return fmt.Errorf("make sure that %s stays down: %w", r.victim, err)
	}
	r.down = true
	steps, err := r.system.Failover(ctx, r.victim)
	r.steps = append(r.steps, steps...)
	if err != nil {
		return fmt.Errorf("fail over from %s: %w", r.victim, err)
	}
	r.event("the script has ended")
	return nil
}

// record fills the row with what the prober saw.
func (r *rto) record() {
	line := r.prober.Timeline()
	end := time.Since(r.prober.Began())
	c := r.cell
	c.recordTimeline(line, end)
	out := outageOf(line, r.at, r.mended, end)
	c.set(result.GapMS, ms(out.stop-out.start))
	if out.rejoin > 0 {
		c.set(result.RejoinGapMS, ms(out.rejoin))
	}
	switch {
	case out.never && r.onPrimary:
		c.text(result.TextVerdict, "no write was acknowledged until the end")
	case r.onPrimary:
		c.set(result.WritableMS, ms(out.stop-r.at))
		if r.script > 0 {
			c.set(result.ScriptMS, ms(max(out.stop-r.script, 0)))
		}
	}
	if out.open {
		c.text(result.TextOpen, "no write was acknowledged before "+r.victim+" came back")
	}
	c.text(result.TextDetection, r.system.Detection())
	if r.scripted() {
		c.text(result.TextDetection, fmt.Sprintf("the operator's script: %v without an acknowledgement, chosen by the lab", scriptWait))
	}
	c.set(result.HumanSteps, float64(len(r.steps)))
	if len(r.steps) > 0 {
		c.text("steps", strings.Join(r.steps, "; "))
	}
	every, values := time.Second, line.Series(time.Second, end)
	// After a fault of the primary sysbench stays at an address where nobody answers; the prober goes on elsewhere.
	if c.step.Threads > 0 && !r.onPrimary {
		values = c.row.Series[result.SeriesTPS].Values
	}
	if d, low, ok := dip(values, int(r.at/every)); ok {
		c.set(result.DipPercent, d)
		c.set(result.LowS, low)
	}
}

// outage is the effect of a fault on the clients' writes.
type outage struct {
	start, stop time.Duration
	open        bool          // the gap had not ended when the fault did
	never       bool          // the gap never ended
	rejoin      time.Duration // the longest gap after that, while the victim comes back
}

// gapOpen is how long a gap at the fault's end must be to count as open: an attempt that began with the gap has then
// reached its time limit. A shorter gap is only the distance between two acknowledgements.
const gapOpen = workload.AttemptTimeout

// outageOf finds the gap that belongs to the fault: the longest gap until the fault ends (mended). Later gaps belong to
// the victim's return. A gap that is open at mended counts to its own end. If mended is 0, all gaps belong to the fault.
func outageOf(line workload.Timeline, at, mended, end time.Duration) outage {
	if mended == 0 || mended > end {
		mended = end
	}
	o := outage{}
	var ended bool
	o.start, o.stop, ended = line.Gap(at, mended)
	rest := mended
	if o.open = !ended && o.stop-o.start >= gapOpen; o.open {
		// All gaps before start are shorter, and nothing is acknowledged between start and mended.
		o.stop, o.never = line.Next(mended, end)
		o.open, rest = mended < end, o.stop
	}
	if rest < end {
		start, stop, _ := line.Gap(rest, end)
		o.rejoin = stop - max(start, rest)
	}
	return o
}

// recordTimeline records a prober's counts and series.
func (c *cell) recordTimeline(line workload.Timeline, end time.Duration) {
	c.set(result.Attempts, float64(len(line)))
	c.set(result.Acknowledged, float64(line.Count(workload.Acknowledged)))
	c.set(result.Unknown, float64(line.Count(workload.Unknown)))
	c.set(result.FailedWrites, float64(line.Count(workload.Failed)))
	c.series(result.SeriesAcked, probeEvery, line.Series(probeEvery, end))
	var errs []string
	for what, n := range line.Errors() {
		errs = append(errs, fmt.Sprintf("%d × %s", n, what))
	}
	if len(errs) > 0 {
		slices.Sort(errs)
		c.text("errors", strings.Join(errs[:min(len(errs), 10)], "; "))
	}
}

// dip compares the rate from second at on with the median before. It returns the loss in the worst second, in
// percent, and the number of seconds below half of the median.
func dip(values []float64, at int) (percent, low float64, ok bool) {
	if at < 3 || at >= len(values) {
		return 0, 0, false
	}
	before := slices.Sorted(slices.Values(values[1:at])) // the first second is incomplete
	median := before[len(before)/2]
	if median == 0 {
		return 0, 0, false
	}
	least := median
	for _, v := range values[at:] {
		least = min(least, v)
		if v < median/2 {
			low++
		}
	}
	return 100 * (1 - least/median), low, true
}

// judge waits for the replicas and compares the ledger with all servers.
func (c *cell) judge(ctx context.Context, ledger workload.Timeline) (check.Verdict, error) {
	lagging := c.replicasFollow(ctx, restoreWait)
	first, servers, err := c.servers(ctx)
	if err != nil {
		return check.Verdict{}, err
	}
	v, err := check.Check(ctx, ledger, peers.Database, servers)
	if err != nil {
		return v, err
	}
	return c.recordVerdict(v, len(servers) > 0 && servers[0].Name == first, lagging), nil
}

// recordVerdict fills the row with what is known. Without a witness nobody says what is lost, and what a replica still
// lacks because it lags has not diverged.
func (c *cell) recordVerdict(v check.Verdict, witnessed bool, lagging error) check.Verdict {
	if witnessed {
		c.set(result.Lost, float64(v.Lost))
		c.set("unknown_there", float64(v.UnknownThere))
	} else {
		c.text(result.TextNoWitness, "no node takes writes")
		v.Lost = 0
	}
	if lagging == nil {
		c.set(result.Diverged, float64(v.Diverged))
	} else {
		c.text(result.TextLagging, "not: "+oneLine(lagging))
	}
	if len(v.Examples) > 0 {
		c.text(result.TextExamples, strings.Join(v.Examples, "; "))
	}
	return v
}

// servers are the servers that run. The first of them is the witness, if that runs.
func (c *cell) servers(ctx context.Context) (first string, all []check.Server, err error) {
	primary, err := c.system.Primary(ctx)
	if err != nil {
		return "", nil, err
	}
	var writers []peers.Endpoint
	if primary == "" {
		if writers, err = c.system.Writers(ctx); err != nil {
			return "", nil, err
		}
	}
	first = witness(primary, writers)
	for _, n := range c.system.Nodes() {
		if n.Kind == "router" || n.Kind == "logger" || len(n.Processes) == 0 {
			continue
		}
		db, err := c.system.Admin(ctx, n.Name)
		if err != nil {
			return "", nil, err
		}
		all = append(all, check.Server{Name: n.Name, DB: db})
	}
	slices.SortStableFunc(all, func(x, y check.Server) int {
		switch first {
		case x.Name:
			return -1
		case y.Name:
			return 1
		}
		return 0
	})
	return first, all, nil
}

// witness is the node that decides whether a row is lost: the primary. If every node is a primary, it is a node that
// takes writes: a row is not lost because a node outside of the group lacks it. "" = no node takes writes.
func witness(primary string, writers []peers.Endpoint) string {
	if primary == "" && len(writers) > 0 {
		return writers[0].Node
	}
	return primary
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
