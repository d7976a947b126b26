package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quorate/quorate/lab/result"
)

// synthetic makes results of every experiment, with failed and skipped rows and a torn
// last line, through the file's format. The figures are invented, and resemble those of the articles.
func synthetic(t *testing.T, seed uint64) result.Results {
	t.Helper()
	s := &synthesizer{random: rand.New(rand.NewPCG(seed, 0)), at: time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC), run: fmt.Sprintf("run-%d", seed)}
	s.facts()
	s.throughput()
	s.jitter()
	s.rto()
	s.rest()
	var file bytes.Buffer
	for _, line := range s.lines {
		data, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		file.Write(append(data, '\n'))
	}
	file.WriteString(`{"schema":1,"run":"torn`)
	res, err := result.Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

type synthesizer struct {
	random *rand.Rand
	at     time.Time
	run    string
	lines  []any
}

var (
	synthSystems  = []string{"standalone", "async", "async,workers=1", "semisync", "mgr", "mgr-after", "mgr-multi", "galera", "router", "quorate"}
	synthNetworks = map[string]float64{"same-rack": 0.1, "same-city": 1, "two-city": 30}
)

func (s *synthesizer) noise(v, by float64) float64 { return v * (1 + by*(2*s.random.Float64()-1)) }

func (s *synthesizer) add(experiment, variant, network, workload string, threads, repetition int, fill func(*result.Row)) {
	system, options, err := result.ParseVariant(variant)
	if err != nil {
		panic(err)
	}
	s.at = s.at.Add(25 * time.Second)
	r := result.Row{
		Schema: result.Schema, Run: s.run, Repetition: repetition, Started: s.at, Seconds: 12, Status: result.OK, Facts: "f-" + variant,
		Cell:    result.Cell{Experiment: experiment, System: system, Options: options, Network: network, Workload: workload, Threads: threads},
		Metrics: map[string]float64{}, Series: map[string]result.Series{}, Text: map[string]string{},
	}
	r.CellName = r.Name()
	if rtt, known := synthNetworks[network]; known {
		r.RTT = map[string]result.RTT{"a-c": {Configured: rtt, Min: rtt, P50: s.noise(rtt*1.02, 0.01), P99: rtt*1.1 + 0.1, Loaded: rtt*1.05 + 0.3}, "client-a": {Configured: 0.1, Min: 0.01, P50: 0.02, P99: 0.1}}
	}
	fill(&r)
	s.lines = append(s.lines, r)
}

func (s *synthesizer) facts() {
	for _, v := range synthSystems {
		settings := []result.Setting{{Name: "innodb_buffer_pool_size", Value: "134217728", Why: "the same for all"}, {Name: "max_connections", Value: "1000", Why: "the same for all"}}
		if v == "mgr" {
			settings = append(settings, result.Setting{Name: "group_replication_flow_control_mode", Value: "DISABLED", Why: "the article's advice: fastest"})
		}
		s.lines = append(s.lines, result.Facts{Schema: 1, Kind: "facts", ID: "f-" + v, Run: s.run, Variant: v, Command: "quorate-lab run seeds --out lab-results/" + s.run,
			Versions: map[string]string{"mysqld": "8.4.7", "quorate": "0.3.0"}, Settings: settings,
			Machine: map[string]string{"processors": "2", "memory": "8 GB", "kernel": "6.1.0", "disk": "ext4, fdatasync 0.5 ms"}})
	}
}

// tps returns a figure that resembles those of the articles, for two processors.
func tps(variant, network string, threads int) float64 {
	rtt := synthNetworks[network]
	commitMS, most := 1.0, 3000.0
	switch variant {
	case "standalone":
		rtt, most = 0, 3600
	case "async", "async,workers=1":
		rtt, most = 0, 3100
	case "semisync", "quorate":
		rtt = min(rtt, 1)
		most = 2400
	case "mgr", "router", "mgr-multi":
		rtt *= 1.2
	case "mgr-after":
		commitMS, most, rtt = 3, 400, rtt*1.5
	case "galera":
		most = 1900
	}
	return 1 / ((commitMS+rtt)/1000/float64(threads) + 1/most)
}

func (s *synthesizer) throughput() {
	for repetition := 1; repetition <= 3; repetition++ {
		for _, workload := range []string{"oltp_write_only", "oltp_read_write"} {
			for network := range ordered {
				for _, v := range synthSystems {
					for _, threads := range []int{1, 16, 64} {
						s.add(result.Throughput, v, network, workload, threads, repetition, func(r *result.Row) { s.load(r, v, network, workload, threads) })
					}
				}
			}
		}
		for _, v := range []string{"async", "semisync", "quorate"} {
			s.add(result.Throughput, v, "same-rack", "oltp_read_write", 4, repetition, func(r *result.Row) { s.load(r, v, "same-rack", "oltp_read_write", 4) })
		}
		for _, v := range []string{"async", "quorate"} {
			s.add(result.Throughput, v, "same-rack", "oltp_update_index", 64, repetition, func(r *result.Row) { s.load(r, v, "same-rack", "oltp_write_only", 64) })
		}
	}
}

func ordered(yield func(string) bool) {
	for _, n := range networkOrder {
		if _, known := synthNetworks[n]; known && !yield(n) {
			return
		}
	}
}

func (s *synthesizer) load(r *result.Row, variant, network, workload string, threads int) {
	if variant == "galera" && network == "two-city" && threads == 64 {
		r.Status, r.Reason, r.Metrics = result.Failed, "sysbench: error 1213: <Deadlock> found & not \"ignored\"", nil
		return
	}
	if variant == "router" && network == "same-city" {
		r.Status, r.Reason, r.Metrics = result.Skipped, "program is missing: system router needs mysqlrouter: run scripts/get-rivals.sh DIR and set QUORATE_RIVALS=DIR", nil
		return
	}
	v := s.noise(tps(variant, network, threads), 0.06)
	if workload == "oltp_read_write" {
		v = 1 / (1/v + 1.0/900)
	}
	r.Metrics = map[string]float64{result.TPS: v, result.QPS: v * 6, result.P50MS: float64(threads) / v * 900, result.P95MS: float64(threads) / v * 1500, result.P99MS: float64(threads) / v * 2200,
		result.Errors: 0, result.LagTx: 12, result.DrainS: 0.2, result.EffectiveTPS: v * 0.98, result.CPU + "mysqld": 800 / math.Sqrt(v) * 10, result.CPU + "client": 90}
	if variant == "async,workers=1" {
		r.Metrics[result.LagTx], r.Metrics[result.DrainS], r.Metrics[result.EffectiveTPS] = 9000, 14, v*0.42
	}
	if variant == "mgr" || variant == "quorate" {
		r.Metrics[result.NodeCPU+"a.mysqld"], r.Metrics[result.NodeCPU+"b.mysqld"] = 500, 300
		r.Metrics[result.PrimaryCPU], r.Metrics[result.WakeUps] = 500, 12
	}
	if variant == "quorate" {
		r.Metrics[result.CPU+"agent"], r.Metrics[result.NodeCPU+"a.agent"], r.Metrics[result.PrimaryCPU] = 120, 80, 580
		r.Metrics[result.Messages] = 4.2
		for i, stage := range result.Stages() {
			r.Metrics[result.StageP50+stage], r.Metrics[result.StageP99+stage] = 0.1*float64(i+1), float64(i+1)
		}
	}
}

func (s *synthesizer) jitter() {
	for network := range ordered {
		for _, v := range []string{"mgr", "quorate"} {
			for repetition := 1; repetition <= 3; repetition++ {
				s.add(result.Jitter, v, network, "oltp_read_write", 64, repetition, func(r *result.Row) {
					by := map[string]float64{"mgr": 0.18, "quorate": 0.06}[v]
					values := make([]float64, 60)
					for i := range values {
						values[i] = s.noise(tps(v, network, 64), by)
						if v == "mgr" && i%23 == 22 {
							values[i] *= 0.3
						}
					}
					r.Metrics = map[string]float64{result.TPS: tps(v, network, 64), result.CVPercent: s.noise(by*58, 0.2)}
					r.Series[result.SeriesTPS] = result.Series{EveryMS: 1000, Values: values}
				})
			}
		}
	}
}

// outage is a series of the prober without an acknowledgement for gapS seconds.
func (s *synthesizer) outage(fromS, gapS float64, seconds int) result.Series {
	out := result.Series{EveryMS: 100}
	for i := range seconds * 10 {
		at := float64(i) / 10
		v := math.Round(s.noise(8.5, 0.15))
		if at >= fromS && at < fromS+gapS {
			v = 0
		}
		out.Values = append(out.Values, v)
	}
	return out
}

func (s *synthesizer) rto() {
	gaps := map[string]float64{"semisync": 4.1, "mgr": 6.4, "mgr-after": 7.2, "galera": 3.3, "router": 8.8, "quorate": 1.4}
	for _, v := range []string{"semisync", "mgr", "mgr-after", "galera", "router", "quorate"} {
		for repetition := 1; repetition <= 3; repetition++ {
			s.add(result.RTO, v, "same-rack", "kill-primary", 0, repetition, func(r *result.Row) {
				if v == "router" && repetition < 4 {
					r.Status, r.Reason = result.Failed, "no write was acknowledged within 120 s <timeout>"
					return
				}
				gap := s.noise(gaps[v], 0.2)
				r.Metrics = map[string]float64{result.DetectMS: gap * 700, result.GapMS: gap * 1000, result.WritableMS: gap * 1000, result.RestoredMS: 9000, result.Attempts: 6000, result.Acknowledged: 5600, result.Unknown: 1, result.FailedWrites: 300, result.Lost: 0, result.Diverged: 0, result.HumanSteps: 0}
				r.Text[result.TextDetection] = "another node says so"
				if v == "semisync" {
					r.Metrics[result.HumanSteps] = 3
					r.Metrics[result.ScriptMS] = gap * 250
					r.Metrics[result.Lost], r.Metrics[result.LostMS] = 2, 140
					r.Text[result.TextDetection] = "the script: 3 s"
				}
				if v == "galera" {
					r.Metrics[result.RejoinGapMS] = 800
					r.Text[result.TextOpen] = "no write was acknowledged before a came back"
				}
				r.Series[result.SeriesAcked] = s.outage(10, gap, 60)
				r.Events = []result.Event{{AtMS: 10_000, What: "kill -9 a"}, {AtMS: 10_000 + gap*700, What: "a is gone"}, {AtMS: 10_000 + gap*1000, What: "first write on b"}, {AtMS: 40_000, What: "a started"}, {AtMS: 49_000, What: "all in"}}
			})
		}
	}
	for _, v := range []string{"mgr", "mgr,paxos-single-leader=true", "quorate"} {
		s.add(result.RTO, v, "same-rack", "kill-secondary", 16, 1, func(r *result.Row) {
			gap := map[string]float64{"mgr": 5.5}[v]
			r.Metrics = map[string]float64{result.DetectMS: 5200, result.GapMS: gap*1000 + 45, result.WritableMS: gap * 1000, result.RestoredMS: 12_000, result.DipPercent: 96 - 80*map[bool]float64{true: 0, false: 1}[gap > 0], result.LowS: gap, result.Acknowledged: 5400, result.Lost: 0, result.Diverged: 0, result.HumanSteps: 0}
			r.Series[result.SeriesAcked] = s.outage(10, gap, 60)
			load := result.Series{EveryMS: 1000}
			for i := range 60 {
				x := s.noise(700, 0.1)
				if float64(i) > 10 && float64(i) < 10+gap {
					x = 4
				}
				load.Values = append(load.Values, x)
			}
			r.Series[result.SeriesTPS] = load
			r.Events = []result.Event{{AtMS: 10_000, What: "kill -9 b"}, {AtMS: 40_000, What: "b started"}, {AtMS: 52_000, What: "all in"}}
		})
	}
}

func (s *synthesizer) rest() {
	lost := map[string]float64{"mgr": 37, "galera": 12}
	for _, workload := range []string{"majority-crash", "power-loss"} {
		for _, v := range []string{"semisync", "mgr", "mgr-after", "galera", "quorate"} {
			s.add(result.RPO, v, "same-rack", workload, 0, 1, func(r *result.Row) {
				r.Metrics = map[string]float64{result.Acknowledged: 480, result.Lost: lost[v], result.Diverged: 0, result.Unknown: 1, result.HumanSteps: 2, result.RecoverS: 41}
				r.Text[result.TextVerdict] = "acknowledged from memory of the group; the relay logs had nothing after the restart"
				r.Text[result.TextSteps] = "START GROUP_REPLICATION on b; bootstrap c"
				r.Series[result.SeriesAcked] = s.outage(5, 3+map[bool]float64{true: 0, false: 6}[lost[v] > 0], 20)
				r.Events = []result.Event{{AtMS: 5000, What: "the writes of b and c are held"}, {AtMS: 8000, What: "kill -9 a, for good"}, {AtMS: 12_000, What: "start b and c"}}
				if lost[v] == 0 {
					r.Text[result.TextVerdict] = "nothing was acknowledged while the secondaries could not write"
				}
			})
		}
	}
	for size, factor := range map[string]float64{"50k": 1} {
		for _, v := range []string{"mgr", "mgr,workers=1", "quorate", "quorate,workers=1"} {
			s.add(result.Apply, v, "same-rack", size, 0, 1, func(r *result.Row) {
				took := map[string]float64{"mgr": 31, "mgr,workers=1": 84, "quorate": 22, "quorate,workers=1": 61}[v] * factor
				r.Metrics = map[string]float64{result.Transactions: 50_000 * factor, result.ApplyS: took, result.ApplyTPS: 50_000 * factor / took}
			})
		}
	}
	for _, v := range []string{"mgr", "galera", "quorate"} {
		s.add(result.Large, v, "same-rack", "100MB", 0, 1, func(r *result.Row) {
			r.Metrics = map[string]float64{result.Committed: 1, result.CommitS: 9.5, result.StallMS: 3200, result.Expelled: 0}
			if v == "mgr" {
				r.Metrics = map[string]float64{result.Committed: 0, result.StallMS: 8200, result.Expelled: 1}
				r.Text[result.TextVerdict] = "error 3100: transaction of 150 MB exceeds group_replication_transaction_size_limit"
			}
		})
	}
}
