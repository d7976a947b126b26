package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/quorate/quorate/lab/fault"
	"github.com/quorate/quorate/lab/netlab"
	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/plan"
	"github.com/quorate/quorate/lab/result"
	"github.com/quorate/quorate/lab/workload"
)

const (
	// setupWait bounds a deployment with its data.
	setupWait = 15 * time.Minute
	// pingsIdle and pingsLoaded are how many echoes are sent on each link; between cities one takes 30 ms.
	pingsIdle   = 20
	pingsLoaded = 10
)

// stage is what a cell runs on: a network, a system, its data.
type stage struct {
	dir     string
	network *netlab.Network
	disks   *fault.Disks // only for rpo, else nil
	system  *peers.Deployment
	bench   workload.Sysbench
	tpcc    *workload.TPCC
	filled  map[string]bool // workloads whose tables are there: workload.TPCCName, or "" for sysbench
	dial    workload.Dial
	spread  bool // clients write on all nodes
}

// newStage makes a step's stage. The caller must close it, also after an error.
func newStage(ctx context.Context, r *runner, s plan.Step, dir string) (st *stage, err error) {
	st = &stage{dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return st, fmt.Errorf("create the cell's directory: %w", err)
	}
	topology, err := netlab.Preset(s.Network)
	if err != nil {
		return st, err
	}
	if st.network, err = netlab.New(topology, discard()); err != nil {
		return st, err
	}
	if err := st.network.Up(ctx); err != nil {
		return st, err
	}
	o, err := peerOptions(s.Cell)
	if err != nil {
		return st, err
	}
	o.Network, o.Install, o.WAN = st.network, r.Install, topology.Kind == netlab.TUN
	o.Dir, o.Templates = filepath.Join(dir, "d"), filepath.Join(r.Dir, "templates")
	if s.Experiment == result.RPO {
		if o.Sites > 1 {
			return st, fmt.Errorf("%w: rpo breaks one cluster", errNotForIt)
		}
		nodes := []string{"a", "b", "c", "d", "e"}[:3+o.Learners]
		if s.System == peers.Standalone {
			nodes = nodes[:1]
		}
		if st.disks, err = fault.NewDisks(ctx, r.OpenDisk, filepath.Join(dir, "k"), nodes); err != nil {
			return st, err
		}
		o.DataDirs = st.disks.At
	}
	if st.system, err = peers.Deploy(ctx, o); err != nil {
		return st, err
	}
	st.dial = workload.Dial(st.network.DialContext(netlab.Client))
	st.spread = st.system.Spread()
	st.filled = map[string]bool{}
	st.tpcc = &workload.TPCC{Dial: st.dial, Warehouses: r.Plan.Tables}
	st.bench = workload.Sysbench{Net: o.Network, Program: r.Sysbench, Tables: r.Plan.Tables, Rows: r.Plan.Rows}
	return st, st.fill(ctx, s)
}

// fill makes the tables that a step needs.
func (st *stage) fill(ctx context.Context, s plan.Step) error {
	writers, err := st.writers(ctx)
	if err != nil {
		return err
	}
	if s.Threads > 0 || s.Experiment == result.Apply || leavesWhole(s) {
		if _, err := st.load(ctx, s.Workload); err != nil {
			return err
		}
	}
	if !leavesWhole(s) {
		if err := workload.CreateProbeTable(ctx, st.dial, writers[0]); err != nil {
			return err
		}
	}
	if s.Experiment == result.Large {
		if err := workload.CreateLargeTable(ctx, st.dial, writers[0]); err != nil {
			return err
		}
	}
	_, err = st.system.CatchUp(ctx)
	return err
}

// loader fills the tables of a workload, and loads a system by it.
type loader interface {
	Prepare(ctx context.Context, at peers.Endpoint) error
	Run(ctx context.Context, at []peers.Endpoint, l workload.Load) (workload.Sample, error)
}

// load returns the loader of a workload, its tables filled.
func (st *stage) load(ctx context.Context, name string) (loader, error) {
	var l loader = st.tpcc
	if name != workload.TPCCName {
		l = st.bench
		if name == workload.PointSelectName || name == workload.PointUpdateName {
			l = workload.Points{Sysbench: st.bench, Dial: st.dial, Writes: name == workload.PointUpdateName}
		}
		name = "" // all workloads of sysbench have the same tables
		if st.bench.Program == "" {
			return nil, fmt.Errorf("%w: sysbench: run scripts/get-rivals.sh DIR and set %s=DIR", peers.ErrMissing, peers.EnvRivals)
		}
	}
	if st.filled[name] {
		return l, nil
	}
	writers, err := st.writers(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.Prepare(ctx, writers[0]); err != nil {
		return nil, err
	}
	st.filled[name] = true
	_, err = st.system.CatchUp(ctx)
	return l, err
}

// check checks the tables of a workload on every server, if the workload has a check. All servers must have caught up.
func (st *stage) check(ctx context.Context, name string) error {
	if name != workload.TPCCName {
		return nil
	}
	for _, n := range st.system.Nodes() {
		if st.system.Socket(n.Name) == "" || n.Kind == "router" {
			continue // the node has no server
		}
		db, err := st.system.Admin(ctx, n.Name)
		if err != nil {
			return err
		}
		if err := st.tpcc.Check(ctx, db); err != nil {
			return fmt.Errorf("check node %s: %w", n.Name, err)
		}
	}
	return nil
}

// writers are the endpoints where clients write: the best one, or all.
func (st *stage) writers(ctx context.Context) ([]peers.Endpoint, error) {
	all, err := st.system.Writers(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("no node takes writes")
	}
	if !st.spread {
		all = all[:1]
	}
	return all, nil
}

// clients are the endpoints where the clients of a workload connect. Clients that only read may have others than
// clients that write.
func (st *stage) clients(ctx context.Context, name string) ([]peers.Endpoint, error) {
	if name != workload.PointSelectName {
		return st.writers(ctx)
	}
	all, err := st.system.Readers(ctx)
	if err == nil && len(all) == 0 {
		err = errors.New("no node takes readers")
	}
	return all, err
}

// close takes everything down. The order matters: servers, then the disks that they use.
func (st *stage) close() error {
	var errs []error
	if st.system != nil {
		if st.disks != nil {
			errs = append(errs, st.disks.Refuse()) // a process that waits for a disk cannot be killed
		}
		errs = append(errs, st.system.Close())
	}
	if st.disks != nil {
		errs = append(errs, st.disks.Close())
	}
	if st.network != nil {
		errs = append(errs, st.network.Close())
	}
	if err := os.RemoveAll(st.dir); err != nil {
		errs = append(errs, fmt.Errorf("remove the cell's directory: %w", err))
	}
	return errors.Join(errs...)
}

// peerOptions are a cell's options in the form of package peers.
func peerOptions(c result.Cell) (peers.Options, error) {
	o := peers.Options{System: c.System, Logger: discard()}
	for name, value := range c.Options {
		var err error
		switch name {
		case "workers":
			o.Workers, err = strconv.Atoi(value)
		case "acks":
			o.Acks, err = strconv.Atoi(value)
		case "loggers":
			o.Loggers, err = strconv.Atoi(value)
		case "learners":
			o.Learners, err = strconv.Atoi(value)
		case "durability":
			o.Durability = value
		case "sites":
			o.Sites, err = strconv.Atoi(value)
		case "paxos-single-leader":
			o.PaxosSingleLeader, err = strconv.ParseBool(value)
		case "instruments":
			o.Instruments = value
		case "clients":
			o.Clients = value
		case "plain-peers":
			o.PlainPeers, err = strconv.ParseBool(value)
		case "elect-updated":
			o.ElectUpdated, err = strconv.ParseBool(value)
		case "compress":
			o.Compress, err = strconv.ParseBool(value)
		case "no-sync":
			o.NoSync, err = strconv.ParseBool(value)
		case "writers":
			o.Writers = value
		case "relay-log-recovery":
			o.RelayLogRecovery = value
		case "sync-relay-log":
			o.SyncRelayLog, err = strconv.ParseBool(value)
		case "replica-durability":
			o.ReplicaDurability = value
		case "expel-timeout":
			var seconds int
			seconds, err = strconv.Atoi(value)
			o.ExpelTimeout = &seconds
		case "size-limit":
			o.SizeLimit = value
		case "suspect":
			o.Suspect, err = time.ParseDuration(value)
		default:
			err = errors.New("there is no such option")
		}
		if err != nil {
			return o, fmt.Errorf("option %s=%s: %w", name, value, err)
		}
	}
	return o, nil
}

// links are the links whose round trips are in every row.
func links() []netlab.Pair {
	return []netlab.Pair{{From: netlab.Client, To: "a"}, {From: "a", To: "b"}, {From: "a", To: "c"}}
}

// roundTrips measures the idle network.
func (st *stage) roundTrips(ctx context.Context) (map[string]result.RTT, error) {
	all := map[string]result.RTT{}
	for _, p := range links() {
		rtt, err := st.network.MeasureRTT(ctx, p.From, p.To, pingsIdle)
		if err != nil {
			return nil, err
		}
		all[p.String()] = result.RTT{Configured: ms(rtt.Configured), Min: ms(rtt.Min), P50: ms(rtt.P50), P99: ms(rtt.P99)}
	}
	return all, nil
}

// underLoad measures round trips again, after a while, until ctx is done. It adds the results to all.
func (st *stage) underLoad(ctx context.Context, after time.Duration, all map[string]result.RTT) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(after):
	}
	for _, p := range links() {
		rtt, err := st.network.MeasureRTT(ctx, p.From, p.To, pingsLoaded)
		if err != nil {
			continue // a link may be cut, or the load has ended
		}
		one := all[p.String()]
		one.Loaded = ms(rtt.P50)
		all[p.String()] = one
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
