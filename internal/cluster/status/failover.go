package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
)

// lagFreshSeconds: a lag that is younger than this may be gone by now. The figures are half a second old, and
// so is the newest transaction in them.
const lagFreshSeconds = 2

// BacklogSeconds is how long the node's mysqld would need to apply what it lacks.
func (n Node) BacklogSeconds() float64 {
	if n.LagBytes <= 0 && n.LagTransactions <= 0 {
		return 0
	}
	if n.ApplyRate <= 0 {
		return n.LagSeconds // as long as it took to arise
	}
	backlog := float64(n.LagBytes) / n.ApplyRate
	if n.LagSeconds < lagFreshSeconds {
		return min(backlog, n.LagSeconds)
	}
	return backlog
}

// Stuck tells whether the node's mysqld has applied nothing for a while, although it lacks something.
func (n Node) Stuck() bool { return n.ApplyStuck >= stuckSeconds }

// LagText says what the node's mysqld lacks; "" = nothing, or it is not known.
func (n Node) LagText() string {
	if n.LagUnknown || n.LagTransactions <= 0 {
		return ""
	}
	text := "it lacks " + units.Count(n.LagTransactions, "transaction", "transactions")
	if n.Stuck() {
		text += fmt.Sprintf(", and has applied nothing for %.0f s", n.ApplyStuck)
	}
	return text
}

// CanTakeOver tells whether the node could be the next primary, as far as its status says. Its log may still be
// behind.
func (n Node) CanTakeOver() bool {
	return n.Kind == cluster.KindFull && n.Reachable && n.Role == RoleReplica && n.Weight > 0 &&
		n.ApplierStopped == "" && (n.LogState == "" || n.LogState == LogOK)
}

// FailoverTimes are the parts of a failover's time beside the backlog.
type FailoverTimes struct {
	// Process is the time to notice that a process is gone, Host that a host is silent. Open is the time from
	// winning the election to open writes, without a backlog.
	Process, Host, Open time.Duration
}

// Failover is how long a failover would take now.
type Failover struct {
	// From is the primary, To the node that would take over; "" = none could.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// BacklogSeconds is how long that node would need to apply what it lacks.
	BacklogSeconds float64 `json:"backlog_seconds"`
	// ProcessSeconds is the time without a primary if its mysqld or its agent dies. HostSeconds is that time if
	// its host dies or is cut off. If Until is set, ProcessSeconds is only for its mysqld, and there are no
	// HostSeconds.
	ProcessSeconds float64 `json:"process_seconds"`
	HostSeconds    float64 `json:"host_seconds,omitempty"`
	// Until is set if writes would not go on without the primary's agent or host. They would go on once all
	// nodes of any one of these sets are back.
	Until [][]string `json:"until,omitempty"`
	// Waiting: writes wait now (Quorum), and would wait on that node, too. There are no HostSeconds then.
	Waiting bool `json:"waiting,omitempty"`
	// Reason says why no node could take over, or why it may take longer.
	Reason string `json:"reason,omitempty"`
}

// Estimates for what cannot be known.
const (
	// stuckSeconds is how long a replica must have applied nothing before that is mentioned. It is also how
	// long a promotion waits before it ends the sessions that block the applier.
	stuckSeconds = 2
	// logNearEntries is how far a replica's log may seem to be behind: this many entries may be committed while
	// its status is on the way.
	logNearEntries = 4096
)

// LogBehind is how many committed entries the node's log lacks, as far as the statuses of all nodes say.
// Entries that may have been committed while a status was on its way do not count.
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

// slowerSeconds: if a failover to another node would take this much longer, that is mentioned. Nodes that
// differ by less count as equally far.
const slowerSeconds = 0.5

// EstimateFailover says how long a failover from the primary would take: to the node that would be chosen, by
// what that node lacks. If that node executes a long statement, it takes longer; nobody knows how long.
func EstimateFailover(s Sight, to string, t FailoverTimes) Failover {
	nodes, primary := s.Nodes, s.Primary
	if why := s.NoLease(to); why != "" {
		return Failover{From: primary, Reason: fmt.Sprintf("%s cannot open: %s", to, why)}
	}
	f := Failover{From: primary, To: to, Until: s.without(primary), Waiting: s.Quorum().Survives < 0}
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
			if n.Stuck() {
				f.BacklogSeconds += stuckSeconds
				f.Reason = fmt.Sprintf("%s has applied nothing for %.0f s: a statement that takes long has to end first", n.Name, n.ApplyStuck)
			}
		}
	}
	for _, n := range nodes {
		// A node that has the log may win the election, and then hands over only to a heavier node.
		wins := n.Name != primary && n.Name != to && n.CanTakeOver() && n.Weight >= weight && n.LogLast+logNearEntries >= committed
		if longer := n.BacklogSeconds() - f.BacklogSeconds; wins && !n.LagUnknown && longer > slowerSeconds && f.Reason == "" {
			f.Reason = fmt.Sprintf("%.1f s more if %s wins the election", longer, n.Name)
		}
	}
	if slices.ContainsFunc(nodes, func(n Node) bool { return n.PreparedXA > 0 && (n.Name == primary || n.Name == to) }) {
		f.Reason = strings.TrimPrefix(f.Reason+"; an XA transaction is prepared: "+to+"'s mysqld may have to start again first, which takes some seconds", "; ")
	}
	f.ProcessSeconds = t.Process.Seconds() + f.BacklogSeconds + t.Open.Seconds()
	if f.Until == nil && !f.Waiting {
		f.HostSeconds = t.Host.Seconds() + f.BacklogSeconds + t.Open.Seconds()
	}
	return f
}

// NoLease says why a running node would get no lease as the leader, whatever makes the primary fail; "" = it
// would get one, or runs an older quorate, which needs none.
func (s Sight) NoLease(name string) string {
	v := s.view()
	return v.noLease(v.set(func(s seat) bool { return s.runs }), v.set(func(s seat) bool { return s.Name == name }))
}

// String says it in one line.
func (f Failover) String() string {
	if f.To == "" {
		return "failover now: " + f.Reason
	}
	line := fmt.Sprintf("if %s's mysqld dies, %s takes over in ≈ %.1f s", f.From, f.To, f.ProcessSeconds)
	switch {
	case f.Waiting && f.Until == nil:
		line += ", and writes wait there, too"
	case f.Waiting:
		line += fmt.Sprintf(", and writes wait there, too; if %s's agent or host dies, they wait until %s", f.From, back(f.Until))
	case f.Until == nil:
		line = fmt.Sprintf("failover now ≈ %.1f s to %s (≈ %.1f s if the host of the primary is gone)", f.ProcessSeconds, f.To, f.HostSeconds)
	default:
		line += fmt.Sprintf("; if %s's agent or host dies, no writes until %s", f.From, back(f.Until))
	}
	if f.Reason != "" {
		line += "; " + f.Reason
	}
	return line
}

// standsStill tells whether the applier has stopped. While mysqld starts, ApplierStopped is of the mysqld before.
func (n Node) standsStill() bool { return n.ApplierStopped != "" && n.Role != RoleStarting }

// Stopped says why a node's mysqld will not follow the log until somebody, or the node itself, has mended that;
// "" = nothing stops it.
func (n Node) Stopped() string {
	switch {
	case n.Role == RoleFenced:
		return "it is fenced"
	case n.Role == RoleErrant:
		return "it is errant"
	case n.standsStill():
		return "its applier has stopped"
	}
	return ""
}

// Knows tells whether its quorate knows all of a cluster state of a format.
func (n Node) Knows(format int) bool { return max(n.StateFormat, 1) >= format }

// Follows tells whether its mysqld gets on with the log. It is also true while the log is being repaired, for a node
// without a mysqld, and while a newer mysqld upgrades the data: the copy of a rebuild would need a node of that version,
// and the first node that is upgraded finds none.
func (n Node) Follows() bool {
	starts := n.Role == RoleStarting || n.Role == RoleUnverified
	upgrades := n.Upgrading && n.Role == RoleStarting // whatever stopped the mysqld before
	return upgrades || n.Stopped() == "" && (!starts || n.LogState == LogRepairing)
}
