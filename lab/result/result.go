package result

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Schema is the version of the format.
const Schema = 1

// The experiments.
const (
	Throughput = "throughput"
	Jitter     = "jitter"
	RTO        = "rto"
	RPO        = "rpo"
	Apply      = "apply"
	Large      = "large"
)

// Experiments lists the experiments in the order of the reports.
func Experiments() []string { return []string{Throughput, Jitter, RTO, RPO, Apply, Large} }

// Names of Row.Metrics. CPU is followed by a component, NodeCPU by a node, a dot and a component.
const (
	TPS           = "tps"
	QPS           = "qps"
	P50MS         = "p50_ms"
	P95MS         = "p95_ms"
	P99MS         = "p99_ms"
	Errors        = "errors"
	Reconnects    = "reconnects"
	CVPercent     = "cv_percent"
	TPSMin        = "tps_min"
	LagTx         = "lag_tx"
	LagBytes      = "lag_bytes"
	DrainS        = "drain_s"
	EffectiveTPS  = "effective_tps"
	CPU           = "cpu_us."
	NodeCPU       = "node_cpu_us."
	PrimaryCPU    = "primary_cpu_us"
	WakeUps       = "wakeups"
	Messages      = "messages"
	StageP50      = "stage_p50_ms." // and the stage
	StageP99      = "stage_p99_ms."
	DetectMS      = "detect_ms"
	GapMS         = "gap_ms"
	RejoinGapMS   = "rejoin_gap_ms"
	WritableMS    = "writable_ms"
	ScriptMS      = "script_ms" // the part of writable_ms since the operator's script began
	RestoredMS    = "restored_ms"
	DipPercent    = "dip_percent"
	LowS          = "low_s"
	Attempts      = "attempts"
	Acknowledged  = "acknowledged"
	Unknown       = "unknown"
	FailedWrites  = "failed"
	Lost          = "lost"
	LostMS        = "lost_ms" // how long before the fault the first of the lost rows was acknowledged
	Diverged      = "diverged"
	HumanSteps    = "human_steps"
	RecoverS      = "recover_s"
	Transactions  = "transactions"
	ApplyS        = "apply_s"
	ApplyTPS      = "apply_tps"
	Committed     = "committed"
	CommitS       = "commit_s"
	StallMS       = "stall_ms"
	Expelled      = "expelled"
	SetupS        = "setup_s"
	TextVerdict   = "verdict"
	TextOpen      = "open"      // the outage lasted until the fault was mended
	TextNotBack   = "restored"  // why not all nodes came back; then there is no restored_ms
	TextLagging   = "catch_up"  // why the replicas did not catch up; then there is no diverged
	TextNoWitness = "witness"   // why nobody says what is lost; then there is no lost
	TextDetection = "detection" // what detect_ms is
	TextTeardown  = "teardown"  // what went wrong when a system was taken down
	TextSteps     = "steps"
	TextErrors    = "errors"
	TextExamples  = "examples"
	SeriesTPS     = "tps"
	SeriesAcked   = "acknowledged"
	valuesMax     = 20_000
	droppedValues = "not_numbers" // of Row.Text: metrics that were NaN or infinite
)

// Stages are the stages of a commit in quorate, in their order, as its agents' metrics name them.
func Stages() []string {
	return []string{"tap_propose", "log_append", "proposal_fsynced", "proposal_committed", "tap_ack"}
}

// Status of a cell.
type Status string

// A skipped cell could not be tried (a program is missing, the system has no such thing); a failed one was tried.
const (
	OK      Status = "ok"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Cell is one point of the matrix that a plan asks for.
type Cell struct {
	Experiment string `json:"experiment"`
	System     string `json:"system"`
	// Options are the options of the command line, without the dashes: workers=1, acks=2.
	Options  map[string]string `json:"options,omitempty"`
	Network  string            `json:"network"`
	Workload string            `json:"workload"`
	Threads  int               `json:"threads,omitempty"`
}

// Name is the cell's name: stable, unique, one path.
// throughput/oltp_write_only/two-city/async,workers=1/16
func (c Cell) Name() string {
	return fmt.Sprintf("%s/%s/%s/%s/%d", c.Experiment, c.Workload, c.Network, c.Variant(), c.Threads)
}

// Variant is the system with its options: async,workers=1. It names a deployment, without its network.
func (c Cell) Variant() string {
	parts := []string{c.System}
	for _, k := range slices.Sorted(maps.Keys(c.Options)) {
		parts = append(parts, k+"="+c.Options[k])
	}
	return strings.Join(parts, ",")
}

// Label is Variant for people: async workers=1.
func (c Cell) Label() string { return strings.ReplaceAll(c.Variant(), ",", " ") }

// ParseVariant is the reverse of Variant. It also accepts spaces in place of commas.
func ParseVariant(s string) (system string, options map[string]string, err error) {
	fields := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
	if len(fields) == 0 {
		return "", nil, fmt.Errorf("parse system %q: empty", s)
	}
	for _, f := range fields[1:] {
		k, v, found := strings.Cut(f, "=")
		if !found || k == "" || v == "" {
			return "", nil, fmt.Errorf("parse system %q: option %q is not NAME=VALUE", s, f)
		}
		if options == nil {
			options = map[string]string{}
		}
		options[k] = v
	}
	return fields[0], options, nil
}

// Event is something that happened in a cell, or was done to it.
type Event struct {
	AtMS float64 `json:"at_ms"` // from the beginning of the cell's series
	What string  `json:"what"`
}

// Series are values at equal distances.
type Series struct {
	EveryMS float64   `json:"every_ms"`
	Values  []float64 `json:"values"`
}

// RTT is a round trip time, in milliseconds.
type RTT struct {
	Configured float64 `json:"configured"`
	Min        float64 `json:"min"`
	P50        float64 `json:"p50"`
	P99        float64 `json:"p99"`
	// Loaded is the p50 while the load ran; 0 = not measured.
	Loaded float64 `json:"loaded,omitempty"`
}

// Row is one repetition of a cell.
type Row struct {
	Schema int    `json:"schema"`
	Run    string `json:"run"`
	// CellName is Cell.Name(), for people and tools that read the file.
	CellName string `json:"cell"`
	Cell
	Repetition int       `json:"repetition"` // from 1
	Started    time.Time `json:"started"`
	Seconds    float64   `json:"seconds"` // how long the cell took, without its setup
	// LoadSeconds and WarmupSeconds are what the plan asked for.
	LoadSeconds   float64            `json:"load_s,omitempty"`
	WarmupSeconds float64            `json:"warmup_s,omitempty"`
	Status        Status             `json:"status"`
	Reason        string             `json:"reason,omitempty"`
	Metrics       map[string]float64 `json:"metrics,omitempty"`
	Series        map[string]Series  `json:"series,omitempty"`
	Events        []Event            `json:"events,omitempty"`
	Text          map[string]string  `json:"text,omitempty"`
	RTT           map[string]RTT     `json:"rtt_ms,omitempty"` // by link: a-b
	Facts         string             `json:"facts,omitempty"`  // id of a Facts
	// FailedBefore is how many attempts at the same repetition failed and are hidden by this row (Results.Latest).
	FailedBefore int `json:"-"`
}

// Key names a repetition: a resumed run skips the keys that are done.
func (r Row) Key() string { return Key(r.Cell, r.Repetition) }

// Key is the key that repetition n (from 1) of a cell has.
func Key(c Cell, n int) string { return fmt.Sprintf("%s#%d", c.Name(), n) }

// Metric returns a metric and whether it was measured.
func (r Row) Metric(name string) (float64, bool) {
	v, ok := r.Metrics[name]
	return v, ok
}

// Facts say which programs ran, with which settings, on which machine.
type Facts struct {
	Schema int    `json:"schema"`
	Kind   string `json:"kind"` // "facts"
	ID     string `json:"id"`
	Run    string `json:"run"`
	// Variant is the system with its options; "" = the facts of the run as a whole.
	Variant  string            `json:"variant,omitempty"`
	Plan     string            `json:"plan,omitempty"`
	Command  string            `json:"command,omitempty"` // the command line that made the run
	Versions map[string]string `json:"versions,omitempty"`
	Settings []Setting         `json:"settings,omitempty"`
	Machine  map[string]string `json:"machine,omitempty"` // processors, memory, kernel, disk …
}

// Setting of a system's servers.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Why   string `json:"why,omitempty"`
}

const kindFacts = "facts"

// clean makes a row fit for JSON and for the limits.
func (r *Row) clean() {
	r.Schema, r.CellName = Schema, r.Name()
	var dropped []string
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	metrics := make(map[string]float64, len(r.Metrics))
	for _, k := range slices.Sorted(maps.Keys(r.Metrics)) {
		if finite(r.Metrics[k]) {
			metrics[k] = r.Metrics[k]
		} else {
			dropped = append(dropped, k)
		}
	}
	series := make(map[string]Series, len(r.Series))
	for _, k := range slices.Sorted(maps.Keys(r.Series)) {
		s := r.Series[k]
		if len(s.Values) > valuesMax || slices.ContainsFunc(s.Values, func(v float64) bool { return !finite(v) }) {
			dropped = append(dropped, "series "+k)
			continue
		}
		series[k] = s
	}
	r.Metrics, r.Series = metrics, series
	if len(dropped) > 0 {
		text := maps.Clone(r.Text)
		if text == nil {
			text = map[string]string{}
		}
		text[droppedValues] = strings.Join(dropped, ", ")
		r.Text = text
	}
}
