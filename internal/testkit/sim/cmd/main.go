// Command cmd runs the simulator (docs/simulation.md): one seed, or many seeds in several processes. It exits
// with 1 if a promise was broken, and with 2 if it was called wrongly.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/testkit/sim"
)

type command struct {
	options  sim.Options
	seeds    string
	faults   string
	parallel int
	events   bool
	shrink   bool
}

// gcPercent saves time and costs memory: a run needs little memory.
const gcPercent = 800

func main() {
	debug.SetGCPercent(gcPercent)
	c := command{}
	flag.Uint64Var(&c.options.Seed, "seed", 1, "the run's `seed`")
	flag.StringVar(&c.seeds, "seeds", "", "run all seeds `A..B`, and stop at the first that fails")
	flag.IntVar(&c.options.Nodes, "nodes", 0, "3 or 5 nodes; 0 = the seed decides")
	flag.IntVar(&c.options.Loggers, "loggers", 0, "how many of the nodes have no mysqld; 0 = the seed decides, -1 = none")
	flag.IntVar(&c.options.Members, "members", 0, "1: the members change, 2: a vote of two comes and goes, 3: they change, and learners have sources, -1: they do not change; 0 = the seed decides")
	flag.IntVar(&c.options.Losses, "losses", 0, "1: a majority is lost for good, and one node is recovered without it (the members change only by that)")
	flag.BoolVar(&c.options.Blips, "blips", false, "depose the primary again and again, mostly with nothing lost")
	flag.IntVar(&c.options.XA, "xa", 0, "1: clients use XA transactions, -1: they do not; 0 = the seed decides")
	flag.BoolVar(&c.options.LateClocks, "late-clocks", false, "machines are paused with their clocks, and wall clocks are set right late")
	flag.IntVar(&c.options.Appliers, "appliers", 0, "1: appliers stop with errors, and the bound on the apply lag is short, -1: they do not; 0 = the seed decides")
	flag.DurationVar(&c.options.Lasts, "lasts", 0, "how long faults go on; 0 = 30s")
	flag.StringVar(&c.faults, "faults", "", "inject only these of the seed's faults: `numbers` with commas, or none")
	flag.IntVar(&c.parallel, "parallel", runtime.NumCPU(), "how many `processes` share -seeds")
	flag.BoolVar(&c.events, "events", false, "print every event")
	flag.BoolVar(&c.shrink, "shrink", false, "if it fails, look for fewer faults that suffice")
	flag.Parse()
	ok, err := c.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func (c *command) run() (ok bool, err error) {
	if c.faults != "" {
		if c.options.Only, err = parseFaults(c.faults); err != nil {
			return false, err
		}
	}
	if c.seeds == "" {
		return c.one(c.options.Seed), nil
	}
	var from, to uint64
	if _, err := fmt.Sscanf(c.seeds, "%d..%d", &from, &to); err != nil || from > to {
		return false, fmt.Errorf("-seeds %s: want A..B", c.seeds)
	}
	if c.parallel > 1 {
		return c.spread(from, to)
	}
	for seed := from; seed <= to; seed++ {
		if !c.one(seed) {
			return false, nil
		}
	}
	return true, nil
}

func parseFaults(text string) ([]int, error) {
	ids := []int{}
	if text == "none" {
		return ids, nil
	}
	for _, field := range strings.Split(text, ",") {
		id, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("-faults %s: %w", text, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// one runs one seed and prints the result. It returns false if the run failed.
func (c *command) one(seed uint64) bool {
	o := c.options
	o.Seed = seed
	if c.events {
		out := bufio.NewWriterSize(os.Stdout, 1<<20)
		defer out.Flush()
		o.Events = out
	}
	began := time.Now()
	r := sim.Run(o)
	fmt.Printf("seed %d: %s\n", seed, r.Summary(time.Since(began)))
	if r.Failure == nil {
		return true
	}
	if c.shrink {
		r = sim.Shrink(o, r, sim.Run, func(r sim.Result) {
			fmt.Printf("still fails with %d faults: %s\n", len(r.Faults), r.Failure.Name)
		})
	}
	fmt.Print(r.Report())
	return false
}

// spread runs each seed in a process of its own, because one process can do only one run at a time.
func (c *command) spread(from, to uint64) (ok bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, fmt.Errorf("find own program: %w", err)
	}
	var mu sync.Mutex
	ok = true
	next := from
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, ok && next-1 <= to
	}
	var workers sync.WaitGroup
	for range c.parallel {
		workers.Go(func() {
			for seed, more := take(); more; seed, more = take() {
				args := []string{"-seed", fmt.Sprint(seed), "-nodes", fmt.Sprint(c.options.Nodes), "-loggers", fmt.Sprint(c.options.Loggers), "-members", fmt.Sprint(c.options.Members), "-losses", fmt.Sprint(c.options.Losses), fmt.Sprintf("-blips=%t", c.options.Blips), fmt.Sprintf("-late-clocks=%t", c.options.LateClocks), "-xa", fmt.Sprint(c.options.XA), "-appliers", fmt.Sprint(c.options.Appliers), "-lasts", c.options.Lasts.String(), "-faults", c.faults}
				if c.shrink {
					args = append(args, "-shrink")
				}
				out, err := exec.Command(self, args...).CombinedOutput()
				mu.Lock()
				os.Stdout.Write(out)
				ok = ok && err == nil
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return ok, nil
}
