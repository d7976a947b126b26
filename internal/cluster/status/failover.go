package status

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// lagFreshSeconds is how old a lag is at most that may be gone by now: the
// figures are half a second old, and so is the newest transaction in them.
const lagFreshSeconds = 2

// BacklogSeconds is how long the node's mysqld would take to apply what it lacks.
func (n Node) BacklogSeconds() float64 {
	if n.LagBytes <= 0 && n.LagTransactions <= 0 {
		return 0
	}
	if n.ApplyRate <= 0 {
		return n.LagSeconds // as long as it took to come
	}
	backlog := float64(n.LagBytes) / n.ApplyRate
	if n.LagSeconds < lagFreshSeconds {
		return min(backlog, n.LagSeconds)
	}
	return backlog
}

// CanTakeOver tells whether the node could be the next primary, as far as its
// status says: its log may still be behind.
func (n Node) CanTakeOver() bool {
	return n.Kind == cluster.KindFull && n.Reachable && n.Role == RoleReplica && n.Weight > 0 &&
		n.ApplierStopped == "" && (n.LogState == "" || n.LogState == LogOK)
}

// FailoverTimes are what a failover takes beside the backlog.
type FailoverTimes struct {
	// Process is the time to notice a process that is gone, Host one that is
	// silent. Open is the time from winning to open writes, without a backlog.
	Process, Host, Open time.Duration
}

// Failover is what a failover would take now.
type Failover struct {
	// From is the primary, To the node that would take over; "" = none could.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// BacklogSeconds is how long that node would apply what it lacks.
	BacklogSeconds float64 `json:"backlog_seconds"`
	// ProcessSeconds is the time without a primary if its mysqld or its agent
	// dies, HostSeconds if its host does, or is cut off. With Until it is for its mysqld
	// alone, and there are no HostSeconds.
	ProcessSeconds float64 `json:"process_seconds"`
	HostSeconds    float64 `json:"host_seconds,omitempty"`
	// Until is there where writes would not go on without the primary's agent or host:
	// they would once all nodes of any one of these sets are back.
	Until [][]string `json:"until,omitempty"`
	// Reason says why nobody could take over, or why it may take longer.
	Reason string `json:"reason,omitempty"`
}

// Failover's figures of what cannot be known.
const (
	// stuckSeconds is how long a replica has applied nothing before that is worth a
	// word, and how long a promotion waits before it ends the sessions that hold the
	// applier up.
	stuckSeconds = 2
	// logNearEntries is how far a replica's log may seem to be behind: so much is
	// committed while its status is on the way.
	logNearEntries = 4096
)

// LogBehind is how many committed entries the node's log lacks, as far as the statuses
// of all nodes say. What is committed while a status is on its way counts as nothing.
func (n Node) LogBehind(nodes []Node) uint64 {
	committed := uint64(0)
	for _, o := range nodes {
		if o.Reachable {
			committed = max(committed, o.LogCommit)
		}
	}
	behind := committed - min(committed, n.LogLast)
	if n.Reachable && behind <= logNearEntries {
		return 0
	}
	return behind
}

// slowerSeconds is by how much longer a failover to another node would take that
// this is worth a word: nodes that are so close count as equally far.
const slowerSeconds = 0.5

// EstimateFailover says what a failover from the primary to another node would
// take: to the node that would be chosen, by what it lacks. A long statement that it
// executes would take longer still; nobody knows how long.
func EstimateFailover(s Sight, to string, t FailoverTimes) Failover {
	nodes, primary := s.Nodes, s.Primary
	if why := s.NoLease(to); why != "" {
		return Failover{From: primary, Reason: fmt.Sprintf("%s cannot open: %s", to, why)}
	}
	f := Failover{From: primary, To: to, Until: s.without(primary)}
	committed, weight := uint64(0), 0
	for _, n := range nodes {
		if n.Name == primary {
			committed = n.LogCommit
		}
	}
	for _, n := range nodes {
		if n.Name == to {
			weight = n.Weight
			f.BacklogSeconds = n.BacklogSeconds()
			if n.LogLast+logNearEntries < committed {
				f.Reason = fmt.Sprintf("%s has to be sent %d entries of the log first", n.Name, committed-n.LogLast)
			}
			if n.ApplyStuck >= stuckSeconds {
				f.BacklogSeconds += stuckSeconds
				f.Reason = fmt.Sprintf("%s has applied nothing for %.0f s: a statement that takes long has to end first", n.Name, n.ApplyStuck)
			}
		}
	}
	for _, n := range nodes {
		// Who has the log may win the election, and gives way to a heavier node only.
		wins := n.Name != primary && n.Name != to && n.CanTakeOver() && n.Weight >= weight && n.LogLast+logNearEntries >= committed
		if longer := n.BacklogSeconds() - f.BacklogSeconds; wins && !n.LagUnknown && longer > slowerSeconds && f.Reason == "" {
			f.Reason = fmt.Sprintf("%.1f s more if %s wins the election", longer, n.Name)
		}
	}
	f.ProcessSeconds = t.Process.Seconds() + f.BacklogSeconds + t.Open.Seconds()
	if f.Until == nil {
		f.HostSeconds = t.Host.Seconds() + f.BacklogSeconds + t.Open.Seconds()
	}
	return f
}

// NoLease says why a node that runs would get no lease as the leader, whatever the primary
// fails by; "" = it would, or runs an older quorate, which needs none.
func (s Sight) NoLease(name string) string {
	v := s.view()
	return v.noLease(v.set(func(s seat) bool { return s.runs }), v.set(func(s seat) bool { return s.Name == name }))
}

// String says it in a line.
func (f Failover) String() string {
	if f.To == "" {
		return "failover now: " + f.Reason
	}
	line := ""
	if f.Until == nil {
		line = fmt.Sprintf("failover now ≈ %.1f s to %s (≈ %.1f s if the host of the primary is gone)", f.ProcessSeconds, f.To, f.HostSeconds)
	} else {
		line = fmt.Sprintf("if %s's mysqld dies, %s takes over in ≈ %.1f s; if %s's agent or host dies, no writes until %s",
			f.From, f.To, f.ProcessSeconds, f.From, back(f.Until))
	}
	if f.Reason != "" {
		line += "; " + f.Reason
	}
	return line
}

// Stopped says why a node's mysqld does not follow the log until somebody, or the node
// itself, has seen to that; "" = nothing stops it.
func (n Node) Stopped() string {
	switch {
	case n.Role == RoleFenced:
		return "it is fenced"
	case n.Role == RoleErrant:
		return "it is errant"
	case n.ApplierStopped != "":
		return "its applier has stopped"
	}
	return ""
}

// Follows tells whether its mysqld gets on with the log, or has nothing to do with it.
func (n Node) Follows() bool {
	starts := n.Role == RoleStarting || n.Role == RoleUnverified
	return n.Stopped() == "" && (!starts || n.LogState == LogRepairing)
}
