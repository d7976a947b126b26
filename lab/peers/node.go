package peers

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/subprocess"
)

// The components of nodes, as CPU and Node.Processes name them.
const (
	componentMysqld   = "mysqld"
	componentMariadbd = "mariadbd"
	componentAgent    = "agent"
	componentRouter   = "router"
)

// Node describes a node of a deployment.
type Node struct {
	Name string
	// Kind is "full", "logger", "learner" or "router".
	Kind string
	Addr netip.Addr
	// Processes are the ids of the running processes, by component.
	Processes map[string]int
}

// node is one node: its directory and its processes.
type node struct {
	name, kind string
	addr       netip.Addr
	dir        string // configuration, log, socket
	dataDir    string
	key        cluster.Key // its agent's key; "" = none
	net        Net

	mu    sync.Mutex
	main  *part                    // the process that we started; nil = none yet
	spent map[string]time.Duration // CPU time of processes that are gone
	gone  bool                     // it never comes back
}

// part is a process that was started on a node.
type part struct {
	component string
	process   *subprocess.Process
	cmd       *exec.Cmd
}

func newNode(o Options, name, kind string) *node {
	n := &node{
		name: name, kind: kind, addr: o.Network.Addr(name), dir: filepath.Join(o.Dir, name),
		net: o.Network, spent: map[string]time.Duration{},
	}
	n.dataDir = filepath.Join(n.dir, "data")
	if o.DataDirs != nil {
		n.dataDir = filepath.Join(o.DataDirs(name), "data")
	}
	return n
}

func (n *node) config() string { return filepath.Join(n.dir, "my.cnf") }
func (n *node) socket() string { return filepath.Join(n.dir, "s") }
func (n *node) log() string    { return filepath.Join(n.dir, "log") }

// start starts cmd as the node's process. What it prints is appended to the
// node's log.
func (n *node) start(component string, cmd *exec.Cmd) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.main != nil && !n.main.process.Ended() {
		return fmt.Errorf("start node %s: it runs already", n.name)
	}
	out, err := os.OpenFile(n.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open log of node %s: %w", n.name, err)
	}
	defer out.Close() // the child has its own descriptor
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.dir, out, out
	p, err := n.net.Start(n.name, cmd)
	if err != nil {
		return fmt.Errorf("start %s of node %s: %w", component, n.name, err)
	}
	n.main = &part{component: component, process: p, cmd: cmd}
	return nil
}

// running returns the node's process, nil if it has none.
func (n *node) running() *part {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.main == nil || n.main.process.Ended() {
		return nil
	}
	return n.main
}

// done is closed when the node's process has ended.
func (n *node) done() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.main == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return n.main.process.Done()
}

// processes returns the process ids by component: of the process that we
// started, and of the mysqld that an agent has started.
func (n *node) processes() map[string]int {
	all := map[string]int{}
	if p := n.running(); p != nil {
		all[p.component] = p.process.Pid()
		if p.component == componentAgent {
			children := subprocess.Children(p.process.Pid())
			for _, m := range children {
				all[componentMysqld] = m.Pid()
			}
			subprocess.Release(children)
		}
	}
	return all
}

// kill sends SIGKILL to all of the node's processes, at once, and returns when
// they are gone. An agent's mysqld would die by its parent-death signal; it gets
// SIGKILL nevertheless, so that both die at the same time.
func (n *node) kill() error {
	p := n.running()
	if p == nil {
		return nil
	}
	n.account(n.processes())
	children := subprocess.Children(p.process.Pid())
	defer subprocess.Release(children)
	var errs []error
	for _, m := range children {
		errs = append(errs, m.Signal(syscall.SIGKILL))
	}
	errs = append(errs, p.process.Kill())
	for _, m := range children {
		errs = append(errs, m.WaitGone())
	}
	return errors.Join(errs...)
}

// stop asks the node's process to end (SIGTERM) and returns when it has ended.
func (n *node) stop(limit time.Duration) error {
	p := n.running()
	if p == nil {
		return nil
	}
	n.account(n.processes())
	if err := p.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.process.Done():
		return nil
	case <-time.After(limit):
		return fmt.Errorf("stop node %s: %s has not ended after %v", n.name, p.component, limit)
	}
}

// signal sends sig to all of the node's processes.
func (n *node) signal(sig syscall.Signal) error {
	all := n.processes()
	if len(all) == 0 {
		return fmt.Errorf("send %v to node %s: it does not run", sig, n.name)
	}
	for _, pid := range all {
		if err := syscall.Kill(pid, sig); err != nil {
			return fmt.Errorf("send %v to process %d of node %s: %w", sig, pid, n.name, err)
		}
	}
	return nil
}

// account adds the CPU time of the processes to spent, before they end.
func (n *node) account(all map[string]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for component, pid := range all {
		if d, err := cpuTime(pid); err == nil {
			n.spent[component] += d
		}
	}
}

// cpu adds the node's CPU time to sums.
func (n *node) cpu(sums map[Part]time.Duration) error {
	for component, pid := range n.processes() {
		d, err := cpuTime(pid)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // it ended just now
			return fmt.Errorf("read CPU time of node %s: %w", n.name, err)
		}
		sums[Part{n.name, component}] += d
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for component, d := range n.spent {
		sums[Part{n.name, component}] += d
	}
	return nil
}

// logTail returns the end of the node's log, for an error.
func (n *node) logTail() string { return tail(n.log()) }

// tail returns the end of a log.
func tail(log string) string {
	const tailBytes = 800
	text, err := os.ReadFile(log)
	if err != nil {
		return "there is no log"
	}
	return "the log ends: " + string(bytes.TrimSpace(text[max(0, len(text)-tailBytes):]))
}

// userHz is the unit of the times in /proc/PID/stat: sysconf(_SC_CLK_TCK) is 100
// on every Linux that Go runs on.
const userHz = 100

// cpuTime returns the CPU time that a process has used, all threads and both modes:
// fields 14 and 15 of /proc/PID/stat (proc_pid_stat(5)).
func cpuTime(pid int) (time.Duration, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHz, nil
}

// stat returns the fields of /proc/PID/stat after the command, which is in
// parentheses and may hold anything: state, parent, …
func stat(pid int) ([][]byte, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return nil, fmt.Errorf("read /proc/%d/stat: too short", pid)
	}
	return fields, nil
}
