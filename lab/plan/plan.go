package plan

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/quorate/quorate/lab/result"
)

// Bounds of a plan.
const (
	stepsMax       = 20_000
	repetitionsMax = 100
	threadsMax     = 1024
	secondsMax     = 3600
)

const (
	tablesDefault        = 8
	rowsDefault          = 25_000
	secondsDefault       = 10
	warmupSecondsDefault = 3
)

//go:embed plans/*.toml
var files embed.FS

// Plan is a plan file.
type Plan struct {
	Name        string  `toml:"-"`
	Description string  `toml:"description"`
	Tables      int     `toml:"tables"`
	Rows        int     `toml:"rows"`
	Cells       []Cells `toml:"cells"`
}

// Cells stands for every combination of its lists.
type Cells struct {
	Experiment    string   `toml:"experiment"`
	Systems       []string `toml:"systems"`
	Networks      []string `toml:"networks"`
	Workloads     []string `toml:"workloads"`
	Threads       []int    `toml:"threads"`
	Seconds       int      `toml:"seconds"`
	WarmupSeconds *int     `toml:"warmup_seconds"`
	Repetitions   int      `toml:"repetitions"`
}

// Step is one repetition of a cell, in the order of the run.
type Step struct {
	result.Cell
	Repetition int
	// Duration is the length of the load, Warmup that of the warm-up before it.
	Duration, Warmup time.Duration
	// Reuse: the step before it (in the same list) has the same deployment, and leaves it usable for this step.
	Reuse bool
}

// Key is the key of the row that the step makes.
func (s Step) Key() string { return result.Key(s.Cell, s.Repetition) }

// Workloads are the names that Cell.Workload may have in an experiment.
func Workloads(experiment string) []string {
	switch experiment {
	case result.Throughput, result.Jitter:
		return []string{"oltp_read_only", "oltp_read_write", "oltp_write_only", "oltp_update_index", "tpcc", "point_select", "point_update"}
	case result.RTO:
		return []string{"kill-primary", "kill-secondary", "restart-primary", "restart-secondary",
			"freeze-primary", "freeze-secondary", "partition-primary", "partition-secondary", "crash-primary", "switchover-primary",
			"kill-city", "switchover-city"}
	case result.RPO:
		return []string{"majority-crash", "power-loss"}
	case result.Apply:
		return []string{"50k", "100k", "200k"}
	case result.Large:
		return []string{"100MB", "1GB"}
	}
	return nil
}

// Known has the names that the other packages know: plans are checked by it.
type Known struct {
	// Systems has the options of each system. Common has the options that apply to all.
	Systems  map[string][]string
	Common   []string
	Networks []string
}

// names are the names of the embedded plans.
func names() []string {
	return []string{"smoke", "bench", "failures", "commit", "ways", "cities", "tables", "seeds", "full"}
}

// Embedded lists the embedded plans.
func Embedded() []Plan {
	var plans []Plan
	for _, name := range names() {
		p, err := Load(name)
		if err != nil {
			panic(err) // a test loads them all
		}
		plans = append(plans, p)
	}
	return plans
}

// Text is the text of an embedded plan.
func Text(name string) ([]byte, error) {
	data, err := files.ReadFile("plans/" + name + ".toml")
	if err != nil {
		return nil, fmt.Errorf("no plan %q: choose %s, or name a file", name, strings.Join(names(), ", "))
	}
	return data, nil
}

// Load parses an embedded plan.
func Load(name string) (Plan, error) {
	data, err := Text(name)
	if err != nil {
		return Plan{}, err
	}
	return Parse(name, data)
}

// Parse parses a plan file.
func Parse(name string, data []byte) (Plan, error) {
	p := Plan{Name: name, Tables: tablesDefault, Rows: rowsDefault}
	d := toml.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		var strict *toml.StrictMissingError
		if errors.As(err, &strict) && len(strict.Errors) > 0 {
			row, _ := strict.Errors[0].Position()
			return p, fmt.Errorf("plan %s line %d: there is no %q", name, row, strings.Join(strict.Errors[0].Key(), "."))
		}
		var decode *toml.DecodeError
		if errors.As(err, &decode) {
			row, _ := decode.Position()
			return p, fmt.Errorf("plan %s line %d: %w", name, row, err)
		}
		return p, fmt.Errorf("plan %s: %w", name, err)
	}
	if p.Tables < 1 || p.Tables > 1000 || p.Rows < 1 || p.Rows > 100_000_000 {
		return p, fmt.Errorf("plan %s: %d tables of %d rows: 1 to 1000 tables of 1 to 100 000 000 rows", name, p.Tables, p.Rows)
	}
	if len(p.Cells) == 0 {
		return p, fmt.Errorf("plan %s: no [[cells]]", name)
	}
	for i := range p.Cells {
		if err := p.Cells[i].normalize(); err != nil {
			return p, fmt.Errorf("plan %s, cells %d: %w", name, i+1, err)
		}
	}
	return p, nil
}

func (c *Cells) normalize() error {
	if c.Seconds == 0 {
		c.Seconds = secondsDefault
	}
	if c.WarmupSeconds == nil {
		c.WarmupSeconds = new(warmupSecondsDefault)
	}
	if c.Repetitions == 0 {
		c.Repetitions = 1
	}
	if len(c.Threads) == 0 {
		c.Threads = []int{0}
	}
	workloads := Workloads(c.Experiment)
	switch {
	case workloads == nil:
		return fmt.Errorf("experiment %q: choose %s", c.Experiment, strings.Join(result.Experiments(), ", "))
	case len(c.Systems) == 0 || len(c.Networks) == 0 || len(c.Workloads) == 0:
		return errors.New("systems, networks and workloads must each name at least one")
	case c.Seconds < 1 || c.Seconds > secondsMax || *c.WarmupSeconds < 0 || *c.WarmupSeconds > secondsMax:
		return fmt.Errorf("seconds %d, warmup_seconds %d: at most %d", c.Seconds, *c.WarmupSeconds, secondsMax)
	case c.Repetitions < 1 || c.Repetitions > repetitionsMax:
		return fmt.Errorf("repetitions %d: 1 to %d", c.Repetitions, repetitionsMax)
	}
	for _, s := range c.Systems {
		if _, _, err := result.ParseVariant(s); err != nil {
			return err
		}
	}
	for _, w := range c.Workloads {
		if !slices.Contains(workloads, w) {
			return fmt.Errorf("workload %q: %s has %s", w, c.Experiment, strings.Join(workloads, ", "))
		}
	}
	for _, n := range c.Threads {
		if n < 0 || n > threadsMax {
			return fmt.Errorf("threads %d: 0 to %d", n, threadsMax)
		}
		if n == 0 && (c.Experiment == result.Throughput || c.Experiment == result.Jitter) {
			return fmt.Errorf("%s needs threads", c.Experiment)
		}
	}
	return nil
}

// Check returns an error if the plan has names that known does not have.
func (p Plan) Check(known Known) error {
	for i, c := range p.Cells {
		for _, s := range c.Systems {
			if err := known.checkSystem(s); err != nil {
				return fmt.Errorf("plan %s, cells %d: %w", p.Name, i+1, err)
			}
		}
		for _, n := range c.Networks {
			if !slices.Contains(known.Networks, n) {
				return fmt.Errorf("plan %s, cells %d: network %q: choose %s", p.Name, i+1, n, strings.Join(known.Networks, ", "))
			}
		}
	}
	return nil
}

func (k Known) checkSystem(text string) error {
	system, options, err := result.ParseVariant(text)
	if err != nil {
		return err
	}
	allowed, found := k.Systems[system]
	if !found {
		return fmt.Errorf("system %q: choose %s", system, strings.Join(slices.Sorted(maps.Keys(k.Systems)), ", "))
	}
	for o := range options {
		if !slices.Contains(allowed, o) && !slices.Contains(k.Common, o) {
			return fmt.Errorf("system %s has no option %q", system, o)
		}
	}
	return nil
}
