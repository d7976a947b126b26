package peers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Part is a component of one node: what a host of its own would carry.
type Part struct{ Node, Component string }

// Thread is a thread of a Part. An id is not used again within a load.
type Thread struct {
	Part
	ID int
}

// CPU returns the CPU time of all nodes since the deployment's start, by node and component.
// What a state transfer's helpers used is missing, and of a mysqld that its agent
// started anew what the old one had used.
func (d *Deployment) CPU() (map[Part]time.Duration, error) {
	sums := map[Part]time.Duration{}
	for _, n := range d.nodes {
		if err := n.cpu(sums); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// Waits returns how often each living thread of all nodes has given up its processor to wait for something since it
// began: its voluntary context switches. Each is a wake-up, but for the last. The kernel forgets those of a thread
// that ends: who counts over a time asks before its end, too.
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

// ErrNotCounted: a system does not say how many messages its nodes send each other.
var ErrNotCounted = errors.New("the system does not count messages")

// Messages returns how many messages the nodes have sent each other since they started. Only quorate says so.
func (d *Deployment) Messages(ctx context.Context) (int64, error) {
	if m, ok := d.driver.(interface {
		messages(context.Context) (int64, error)
	}); ok {
		return m.messages(ctx)
	}
	return 0, ErrNotCounted
}

// messagesMetric counts what an agent sends to one peer.
const messagesMetric = "quorate_peer_sent_messages_total"

// messages adds what all agents that run have sent.
func (a *agents) messages(ctx context.Context) (int64, error) {
	sum := int64(0)
	for _, n := range a.d.nodes {
		if n.running() == nil {
			continue
		}
		sent, err := a.sent(ctx, n)
		if err != nil {
			return 0, fmt.Errorf("count messages of node %s: %w", n.name, err)
		}
		sum += sent
	}
	return sum, nil
}

func (a *agents) sent(ctx context.Context, n *node) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address(n.addr.String(), apiPort)+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := a.clients[n.name].Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	sum, found := int64(0), false
	lines := bufio.NewScanner(http.MaxBytesReader(nil, resp.Body, statusBytesMax))
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), messagesMetric+"{") {
			continue
		}
		value := lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:]
		sent, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read metrics: %w", err)
		}
		sum, found = sum+int64(sent), true
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	if !found {
		return 0, fmt.Errorf("read metrics: there is no %s", messagesMetric)
	}
	return sum, nil
}
