package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
)

// dials are made to each peer, of which the fastest counts: it is nearest to the wire.
const (
	dials       = 5
	dialTimeout = time.Second
)

// peer is another node, as the agent knows it or the configuration has it.
type peer struct {
	id       cluster.NodeID
	name, at string
	votes    bool
	status   *status.Node
}

func (h Host) peerList() (all []peer) {
	if h.Agent != nil {
		for i, n := range h.Agent.Nodes {
			if n.Name != h.Agent.Self {
				all = append(all, peer{n.ID, n.Name, n.Peer, n.Kind != cluster.KindLearner, &h.Agent.Nodes[i]})
			}
		}
		return all
	}
	for _, m := range slices.Concat(h.Config.ClusterMembers(), h.Config.AddedMembers()) {
		if m.Name != h.Config.Node {
			all = append(all, peer{m.ID, m.Name, m.Peer, m.Votes(), nil})
		}
	}
	return all
}

// peers measures the way to each other node. It returns the round trips to those with a vote.
func (h Host) peers(ctx context.Context) (checks []cluster.Check, rounds []time.Duration) {
	all := h.peerList()
	found := make([]time.Duration, len(all))
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, p := range all {
		wait.Go(func() { found[i], errs[i] = roundTrip(ctx, p.at) })
	}
	wait.Wait()
	self := h.Config.Self()
	answered := map[cluster.NodeID]bool{self.ID: true}
	var voters []cluster.NodeID
	if self.Votes() {
		voters = append(voters, self.ID)
	}
	for i, p := range all {
		c := h.checkPeer(p, found[i], errs[i])
		if p.votes {
			voters = append(voters, p.id)
			answered[p.id] = found[i] > 0
			if found[i] > 0 {
				rounds = append(rounds, found[i])
			}
		}
		checks = append(checks, c)
	}
	if c, bad := checkMajority(answered, voters); bad {
		checks = append(checks, c)
	}
	return checks, rounds
}

// checkPeer says what there is to say of the way to another node.
func (h Host) checkPeer(p peer, round time.Duration, err error) cluster.Check {
	c := cluster.Check{Subject: "peer " + p.name, State: cluster.CheckOK}
	if round > 0 {
		c.Found = fmt.Sprintf("%s at %s", shown(round), p.at)
		c.Figures = map[string]float64{"round_trip_seconds": round.Seconds()}
	}
	n := p.status
	switch {
	case round == 0:
		c.State, c.Found, c.Do = cluster.CheckWarn, fmt.Sprintf("%s does not answer: %v", p.at, err), "look whether its host runs, and at the firewalls on the way"
	case n != nil && n.Refusal != nil:
		c.State, c.Found, c.Do = cluster.CheckFail, c.Found+": "+n.Refusal.Sentence(n.Name), "quorate status there says more"
	case n != nil && n.Unreached != "":
		c.State, c.Found, c.Do = cluster.CheckFail, c.Found+": "+n.Unreached, "compare the address, the key (quorate key show there) and the firewalls"
	case errors.Is(err, syscall.ECONNREFUSED):
		c.State, c.Found = cluster.CheckWarn, c.Found+": the host answers, and no agent listens"
		c.Do = "start the agent there; if it runs, quorate doctor there"
	case n != nil && !n.Reachable:
		c.State, c.Found, c.Do = cluster.CheckWarn, c.Found+": it listens, and this node's agent does not hear of it", "quorate status says why"
	case n != nil:
		c.Found += ", " + h.security(n)
	default:
		c.Found += ": something listens; whether that is the agent, and the keys fit, shows when this node's agent runs"
	}
	return checkRound(c, round, h.Config.Raft)
}

// security says how the connection with a node that is heard of is protected.
func (h Host) security(n *status.Node) string {
	if self := h.self(); slices.Contains(self.PlainPeers, n.Name) || self.Key == "" || n.Key == "" {
		return "heard of, without TLS"
	}
	return "heard of, TLS, its key fits"
}

// roundTrip is the fastest of some connections to an address: what the handshake of TCP takes. A
// host that refuses has answered, too. 0 = it has not.
func roundTrip(ctx context.Context, address string) (best time.Duration, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(ctx, host) // its time is not the wire's
	if err != nil {
		return 0, err
	}
	address = net.JoinHostPort(found[0], port)
	for range dials {
		began := time.Now()
		conn, dialErr := new(net.Dialer).DialContext(ctx, "tcp", address)
		took := time.Since(began)
		err = dialErr
		if e, ok := errors.AsType[*net.OpError](err); ok {
			err = e.Err
		}
		switch {
		case dialErr == nil:
			_ = conn.Close()
		case !errors.Is(dialErr, syscall.ECONNREFUSED):
			return best, err
		}
		if best == 0 || took < best {
			best = took
		}
	}
	return best, err
}

// latency says what a commit takes at least while this node leads.
func (h Host) latency(median time.Duration, rounds []time.Duration) cluster.Check {
	c := cluster.Check{Subject: "commit latency", State: cluster.CheckUnknown, Found: "not known: the disk or a majority of the peers could not be measured"}
	voters := 0
	for _, p := range h.peerList() {
		if p.votes {
			voters++
		}
	}
	if h.Config.Self().Votes() {
		voters++
	}
	one, behind, known := commitLatency(median, rounds, voters)
	if !known {
		return c
	}
	c.State = cluster.CheckOK
	c.Found = fmt.Sprintf("≈ %s if this node leads; up to %s if it waits for another commit; mysqld's own time comes on top", shown(one), shown(behind))
	c.Figures = map[string]float64{"commit_seconds": one.Seconds(), "commit_behind_seconds": behind.Seconds()}
	return c
}

// Listens are the addresses where a configuration's node will listen, each after the setting that says so.
func Listens(c config.Config) (all [][2]string) {
	add := func(setting, address string) {
		if address != "" {
			all = append(all, [2]string{setting, address})
		}
	}
	self := c.Self()
	add("peer", self.Peer)
	add("router.read_write", c.Router.ReadWrite)
	add("router.read_only", c.Router.ReadOnly)
	add("api.listen", c.API.Listen)
	add("feed.readers_listen", c.Feed.ReadersListen)
	if self.Kind != cluster.KindLogger {
		add("feed.listen", c.Feed.Listen)
		port := strconv.Itoa(c.MySQL.Port)
		add("mysql.port", net.JoinHostPort("127.0.0.1", port))
		if ip, err := netip.ParseAddr(c.MySQL.Bind); err == nil && !ip.IsLoopback() {
			add("mysql.bind", net.JoinHostPort(c.MySQL.Bind, port))
		}
	}
	return all
}

// ports looks whether the node's ports are free, or who has them.
func (h Host) ports() (checks []cluster.Check) {
	free := 0
	for _, l := range Listens(h.Config) {
		setting, address := l[0], l[1]
		subject := "port of " + setting
		listener, err := net.Listen("tcp", address)
		if err == nil {
			_ = listener.Close()
			free++
			continue
		}
		c := cluster.Check{Subject: subject, State: cluster.CheckFail, Found: fmt.Sprintf("%s: %v", address, errors.Unwrap(err))}
		switch {
		case errors.Is(err, syscall.EADDRINUSE) && h.agentRuns():
			continue
		case errors.Is(err, syscall.EADDRINUSE):
			_, port, _ := net.SplitHostPort(address)
			c.Found = fmt.Sprintf("%s is taken by %s", address, h.holder(port))
			c.Do = "stop that program, or set " + setting + " to another port"
			if setting == "peer" {
				c.Do = "stop that program"
			}
			if h.Silent != nil { // whether the agent runs is not known
				c.State, c.Found, c.Do = cluster.CheckUnknown, c.Found+", which may be this node's agent or mysqld", "run this as the agent's account"
			}
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			c.Do = "give this host that address, or correct " + setting
		case errors.Is(err, fs.ErrPermission):
			c.State, c.Do = cluster.CheckUnknown, "run this as the agent's account"
		}
		checks = append(checks, c)
	}
	n := units.Count(free, "port is free", "ports are free")
	switch {
	case h.agentRuns():
		return append(checks, cluster.Check{Subject: "ports", State: cluster.CheckOK, Found: "this node's agent and mysqld have theirs"})
	case len(checks) == 0:
		return []cluster.Check{{Subject: "ports", State: cluster.CheckOK, Found: "all " + n}}
	}
	return checks
}

// loopback warns of an agent that listens where other hosts do not reach it.
func (h Host) loopback(ctx context.Context) []cluster.Check {
	var others []string
	for _, p := range h.peerList() {
		others = append(others, p.at)
	}
	text := config.OnLoopback(ctx, h.Config.Self().Peer, others)
	if text == "" {
		return nil
	}
	return []cluster.Check{{Subject: "address of peer", State: cluster.CheckWarn, Found: text,
		Do: "correct /etc/hosts, or write the address into peer in place of the name; then start the agent again"}}
}

// holder says which program listens on a port, as far as that can be seen.
func (h Host) holder(port string) string {
	number, _ := strconv.ParseUint(port, 10, 16)
	sockets := map[string]bool{}
	for _, file := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(h.Root + "/proc/net/" + file)
		for _, inode := range listeners(string(text), uint16(number)) {
			sockets["socket:["+inode+"]"] = true
		}
	}
	processes, _ := filepath.Glob(h.Root + "/proc/[0-9]*")
	for _, process := range processes {
		files, _ := os.ReadDir(process + "/fd")
		for _, f := range files {
			if to, err := os.Readlink(filepath.Join(process, "fd", f.Name())); err == nil && sockets[to] {
				name, _ := os.ReadFile(process + "/comm")
				return fmt.Sprintf("%s, pid %s", cmp.Or(strings.TrimSpace(string(name)), "a program"), filepath.Base(process))
			}
		}
	}
	return "another account's program (root sees which)"
}

// listeners returns the inodes of the sockets that listen on a port, of the text of
// /proc/net/tcp (Documentation/networking/proc_net_tcp.rst).
func listeners(text string, port uint16) (inodes []string) {
	const listening = "0A"
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 9 && f[3] == listening && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			inodes = append(inodes, f[9])
		}
	}
	return inodes
}
