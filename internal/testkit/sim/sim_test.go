package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fixedSeeds are run by every `go test`: as many as two processors run in about a minute. shortSeeds are run
// with -short. Fixed seeds show that nothing has changed. randomSeeds, or SIM_SEEDS=1000, look for new
// failures.
const (
	fixedSeeds  = 600
	shortSeeds  = 8
	randomSeeds = 6
	// stuckAfter is how long one world may take. It takes a second or two of a processor, which others want, too.
	stuckAfter = 5 * time.Minute
)

// child names the environment variable that makes the test binary run what it reads, and nothing else. One process
// can do only one run at a time.
const child = "SIM_CHILD"

// TestMain saves time and costs memory: a run needs little memory.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	if os.Getenv(child) != "" {
		os.Exit(runChild(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// ran is what a child process says of one run.
type ran struct {
	Result Result
	Took   time.Duration
}

// runChild runs the Options that it reads, until one run fails.
func runChild(from io.Reader, to io.Writer) int {
	in, out := json.NewDecoder(from), json.NewEncoder(to)
	for in.More() {
		var o Options
		if err := in.Decode(&o); err != nil {
			return 2
		}
		began := time.Now()
		stuck := time.AfterFunc(stuckAfter, func() { panic(fmt.Sprintf("this world does not end: %+v", o)) })
		r := Run(o)
		stuck.Stop()
		if err := out.Encode(ran{r, time.Since(began)}); err != nil || r.Failure != nil {
			return 1
		}
	}
	return 0
}

// places bounds the child processes of all tests: each takes some hundred MiB.
var places = make(chan struct{}, 2*runtime.NumCPU())

// runAll runs worlds in one process per processor, beside those of other tests, and returns the results of those that
// were run. A run that fails ends its process.
func runAll(t *testing.T, worlds []Options) (all []Result) {
	t.Helper()
	processes := min(runtime.NumCPU(), len(worlds))
	results, errs := make([][]byte, processes), make([]error, processes)
	var wait sync.WaitGroup
	for p := range processes {
		mine := &bytes.Buffer{}
		for i := p; i < len(worlds); i += processes {
			if err := json.NewEncoder(mine).Encode(worlds[i]); err != nil {
				t.Fatal(err)
			}
		}
		wait.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			runtime.LockOSThread() // Pdeathsig goes by the thread that starts the process
			defer runtime.UnlockOSThread()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), child+"=1")
			cmd.Stdin, cmd.Stderr = mine, os.Stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			results[p], errs[p] = cmd.Output()
		})
	}
	wait.Wait()
	for p, out := range results {
		failed := false
		for in := json.NewDecoder(bytes.NewReader(out)); in.More(); {
			var o ran
			if err := in.Decode(&o); err != nil {
				t.Fatalf("read a child's results: %v", err)
			}
			t.Logf("seed %d: %s", o.Result.Seed, o.Result.Summary(o.Took))
			if failed = o.Result.Failure != nil; failed {
				t.Error(o.Result.Report())
			}
			all = append(all, o.Result)
		}
		if errs[p] != nil && !failed {
			t.Errorf("a child process failed: %v", errs[p])
		}
	}
	if len(all) < len(worlds) {
		t.Fatalf("%d of %d worlds were run", len(all), len(worlds))
	}
	return all
}

// runSeeds is runAll for n seeds, from 1, of one world.
func runSeeds(t *testing.T, n int, world Options) []Result {
	t.Helper()
	var worlds []Options
	for seed := range uint64(n) {
		world.Seed = seed + 1
		worlds = append(worlds, world)
	}
	return runAll(t, worlds)
}

// sum adds the counts of results: each int, also in a struct.
func sum(results []Result) (all Result) {
	for _, r := range results {
		addTo(reflect.ValueOf(&all).Elem(), reflect.ValueOf(r))
	}
	return all
}

func addTo(all, one reflect.Value) {
	for i := range all.NumField() {
		switch f := all.Field(i); f.Kind() {
		case reflect.Int:
			f.SetInt(f.Int() + one.Field(i).Int())
		case reflect.Struct:
			addTo(f, one.Field(i))
		}
	}
}

// TestFixedSeeds runs seeds that are always the same, with 3 and 5 nodes.
func TestFixedSeeds(t *testing.T) {
	t.Parallel()
	n := fixedSeeds
	if testing.Short() {
		n = shortSeeds
	}
	results := runSeeds(t, n, Options{})
	all := sum(results)
	// A world in which nothing happens would keep every promise.
	if all.Epochs < 3*n || all.OK < 200*n || all.LedInNeed < n/10 || all.Plans < n/4 || all.Maintained < n/8 || all.Fenced < n/16 {
		t.Errorf("%d epochs, %d commits, %d terms in need, %d plans, %d times maintenance and %d fenced in %d runs: too few to mean anything",
			all.Epochs, all.OK, all.LedInNeed, all.Plans, all.Maintained, all.Fenced, n)
	}
	if n >= fixedSeeds && (all.Ahead < n/2 || all.LongApplies < n/2 || all.LagsKnown < 50*n) { // a few seeds may have none of them
		t.Errorf("%d reads ahead, %d transactions applied for long, %d looks at known lags in %d runs: too few to mean anything",
			all.Ahead, all.LongApplies, all.LagsKnown, n)
	}
	if s := all.Struck; n >= fixedSeeds && (s.Heals < n/5 || s.HealsInChange < n/60 || s.Torn < n/2 || s.Pauses < n || s.ClockSteps < n/2 ||
		s.Rebuilds < n/20 || all.Reseeds < n/100 || all.AckDrops < n/20) {
		t.Errorf("%s, %d nodes rebuilt by a leader, %d require-acks dropped in %d runs: too few to mean anything", s, all.Reseeds, all.AckDrops, n)
	}
	m := len(slices.DeleteFunc(results, func(r Result) bool { return !r.Members }))
	if m < n/10 || all.MemberChanges < 6*m || all.Joints < 2*m || all.Joins < 2*m || all.Clones < m/2 {
		t.Errorf("%d changes of the members, %d joint, %d nodes joined, %d by a copy of the data, in %d runs: too few to mean anything",
			all.MemberChanges, all.Joints, all.Joins, all.Clones, m)
	}
}

// TestRandomSeeds runs seeds that were probably never run before.
func TestRandomSeeds(t *testing.T) {
	t.Parallel()
	n := randomSeeds
	if testing.Short() {
		n = 2
	}
	if want, err := strconv.Atoi(os.Getenv("SIM_SEEDS")); err == nil {
		n = want
	}
	var worlds []Options
	for range n {
		worlds = append(worlds, Options{Seed: rand.Uint64() >> 1})
	}
	t.Logf("%+v", worlds) // printed even if the run does not end
	runAll(t, worlds)
}

// TestSameSeedSameRun: a seed that is run twice has the same events, in another process and behind another run in the
// same process.
func TestSameSeedSameRun(t *testing.T) { // not parallel: a process can do only one run at a time
	for seed := uint64(101); seed < 104; seed++ {
		first, second, without := Run(Options{Seed: seed}), Run(Options{Seed: seed}), Run(Options{Seed: seed, Only: []int{}})
		elsewhere := runAll(t, []Options{{Seed: seed}})[0]
		for name, again := range map[string]Result{"in the same process": second, "in another process": elsewhere} {
			if again.Hash != first.Hash || again.Events != first.Events {
				t.Errorf("seed %d, again %s: hash %x, %d events; before %x, %d", seed, name, again.Hash, again.Events, first.Hash, first.Events)
			}
		}
		if len(first.Faults) == 0 || len(without.Faults) > 0 || without.Hash == first.Hash {
			t.Errorf("seed %d: the faults make no difference", seed)
		}
	}
}

// TestFaultsStrike: each kind of fault is planned, and breaks no promise.
func TestFaultsStrike(t *testing.T) {
	planned := map[faultKind]bool{}
	for seed := range uint64(40) {
		for _, f := range newWorld(Options{Seed: seed}).plan() {
			planned[f.kind] = true
		}
	}
	for _, w := range weights() {
		if !planned[w.kind] {
			t.Errorf("no %s in 40 seeds", w.kind)
		}
	}
}

// TestShrink: only the faults that the failure needs are left, and another failure does not count as the same.
func TestShrink(t *testing.T) {
	run := func(o Options) Result {
		r := Result{FaultIDs: o.Only}
		switch {
		case slices.Contains(o.Only, 3) && slices.Contains(o.Only, 17):
			r.Failure = &Failure{Name: "I1"}
		case slices.Contains(o.Only, 3):
			r.Failure = &Failure{Name: "I4"}
		}
		return r
	}
	var all []int
	for id := range 40 {
		all = append(all, id)
	}
	got := Shrink(Options{}, run(Options{Only: all}), run, func(Result) {})
	if diff := cmp.Diff([]int{3, 17}, got.FaultIDs); diff != "" {
		t.Errorf("faults left (-want +got):\n%s", diff)
	}
}

// TestSchedulerOrder: the events of one instant happen in the order in which they were added.
func TestSchedulerOrder(t *testing.T) {
	s, rng := scheduler{}, rand.New(rand.NewPCG(1, 2))
	type what struct {
		at time.Duration
		n  int
	}
	var want, got []what
	for n := range 500 {
		w := what{time.Duration(rng.IntN(20)), n}
		want = append(want, w)
		s.at(w.at, func() { got = append(got, w) })
	}
	slices.SortStableFunc(want, func(a, b what) int { return int(a.at - b.at) })
	s.runUntil(time.Second)
	if !slices.Equal(want, got) {
		t.Error("events did not run in the order of time and addition")
	}
}

// TestTaskWaits: real contexts and channels end a task's wait at the machine's time, in the order in which the
// tasks began to wait. A stall delays that.
func TestTaskWaits(t *testing.T) {
	w := newWorld(Options{Nodes: 3})
	n := w.nodes[0]
	n.rate = 1
	l := &life{n: n}
	var got []string
	wait := func(what string, ctx context.Context, d time.Duration, changed <-chan struct{}) {
		l.start(func() {
			err := l.Wait(ctx, d, changed)
			got = append(got, fmt.Sprintf("%s at %v: %v", what, w.sched.now.Truncate(time.Millisecond), err))
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	child, done := context.WithCancel(ctx)
	defer done()
	limited, free := l.WithTimeout(child, 2*time.Second)
	defer free()
	changed, token := make(chan struct{}), make(chan struct{}, 1)
	wait("closed", ctx, 0, changed)
	wait("token", ctx, 0, token)
	wait("token again", child, 0, token)
	wait("time", child, time.Second, token)
	wait("limit", limited, 0, nil)
	wait("never", t.Context(), 0, nil)
	l.after(500*time.Millisecond, func() {
		close(changed)
		token <- struct{}{}
	})
	l.after(3*time.Second, func() { cancel(errors.New("the cause")) })
	w.sched.at(2900*time.Millisecond, func() { n.stall(time.Second) })
	w.sched.runUntil(time.Minute)
	want := []string{
		"closed at 500ms: <nil>", "token at 500ms: <nil>", "time at 1s: <nil>",
		"limit at 2s: context deadline exceeded", "token again at 3.9s: the cause",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	l.end()
}

// TestTaskEnds: a task ends with its process, wherever it waits, and a stall delays the task.
func TestTaskEnds(t *testing.T) {
	w := newWorld(Options{Nodes: 3})
	n := w.nodes[0]
	l := &life{n: n}
	woke, cleaned := time.Duration(0), false
	l.start(func() {
		defer func() { cleaned = true }()
		l.sleep(time.Second)
		woke = w.sched.now
		l.sleep(time.Hour)
		panic("it woke up after its end")
	})
	w.sched.at(500*time.Millisecond, func() { n.stall(2 * time.Second) })
	w.sched.at(10*time.Second, l.end)
	w.sched.runUntil(2 * time.Hour)
	if woke.Truncate(time.Microsecond) != 2500*time.Millisecond {
		t.Errorf("woke at %v, the machine stood still until 2.5s", woke)
	}
	if !cleaned {
		t.Error("the task was not unwound when its process ended")
	}
}
