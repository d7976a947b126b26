package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/quorate/quorate/lab/result"
)

// Part is a component of one node, by which CPU time is counted: so the load of each node's own host would be known.
type Part struct{ Node, Component string }

// Thread is a thread of a Part. An id is not used again within a load.
type Thread struct {
	Part
	ID int
}

// CPU returns the CPU time of all nodes since the deployment's start, by node and component.
// The time of a state transfer's helpers is missing. If an agent has started its mysqld again, the time of the old
// mysqld is missing.
func (d *Deployment) CPU() (map[Part]time.Duration, error) {
	sums := map[Part]time.Duration{}
	for _, n := range d.nodes {
		if err := n.cpu(sums); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// Waits returns the voluntary context switches of each living thread of all nodes: how often it has given up its
// processor to wait. After each except the last it was woken up. The kernel forgets the count of a thread
// that ends, so a caller that counts over a time must also ask shortly before threads end.
func (d *Deployment) Waits() (map[Thread]int64, error) {
	all := map[Thread]int64{}
	for _, n := range d.nodes {
		for component, pid := range n.processes() {
			if err := waitsOf(pid, Part{n.name, component}, all); err != nil {
				return nil, fmt.Errorf("read wake-ups of node %s: %w", n.name, err)
			}
		}
	}
	return all, nil
}

// waitsLine begins the line of /proc/PID/task/TID/status (proc_pid_status(5)).
const waitsLine = "voluntary_ctxt_switches:"

func waitsOf(pid int, part Part, all map[Thread]int64) error {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/status", pid))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended just now
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		for line := range bytes.Lines(text) {
			value, found := bytes.CutPrefix(line, []byte(waitsLine))
			if !found {
				continue
			}
			n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			if err != nil {
				return fmt.Errorf("read %s: %w", file, err)
			}
			all[Thread{part, id}] = n
		}
	}
	return nil
}

// ErrNotCounted: a system's nodes do not count what they do.
var ErrNotCounted = errors.New("the system does not count")

// Counts are the counters of quorate's nodes since they started. Other systems have none.
type Counts struct {
	// Messages is how many messages the agents have sent each other.
	Messages int64
	// Stages come from the primary's agent: where a commit's time goes, by the names of result.Stages.
	Stages map[string]Histogram
}

// Counts returns what the nodes have counted.
func (d *Deployment) Counts(ctx context.Context) (Counts, error) {
	if m, ok := d.driver.(interface {
		counts(context.Context) (Counts, error)
	}); ok {
		return m.counts(ctx)
	}
	return Counts{}, ErrNotCounted
}

// messagesMetric counts what an agent sends to one peer.
const messagesMetric = "quorate_peer_sent_messages_total"

// counts asks all agents that run.
func (a *agents) counts(ctx context.Context) (c Counts, err error) {
	primary, err := a.primary(ctx)
	if err != nil {
		return c, err
	}
	for _, n := range a.nodes {
		if n.running() == nil {
			continue
		}
		metrics, err := a.metrics(ctx, n)
		if err != nil {
			return c, fmt.Errorf("read metrics of node %s: %w", n.name, err)
		}
		if metrics[messagesMetric] == nil {
			return c, fmt.Errorf("read metrics of node %s: there is no %s", n.name, messagesMetric)
		}
		for _, peer := range metrics[messagesMetric].GetMetric() {
			c.Messages += int64(peer.GetCounter().GetValue())
		}
		if n.name == primary {
			c.Stages = map[string]Histogram{}
			for _, stage := range result.Stages() {
				for _, m := range metrics["quorate_"+stage+"_seconds"].GetMetric() {
					c.Stages[stage] = newHistogram(m.GetHistogram())
				}
			}
		}
	}
	return c, nil
}

// metricsTimeout bounds one scrape: Prometheus waits as long. An agent that runs may be slow to answer, because a
// slow disk must first read its code.
const metricsTimeout = 10 * time.Second

func (a *agents) metrics(ctx context.Context, n *node) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address(n.addr.String(), apiPort)+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.clients[n.name].Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(http.MaxBytesReader(nil, resp.Body, statusBytesMax))
}
