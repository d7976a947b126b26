package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// upgradeState is how far an upgrade of mysqld is.
type upgradeState string

// The states of an upgrade.
const (
	upgradeDone    upgradeState = "done"    // every mysqld is the one on its disk
	upgradeNext    upgradeState = "next"    // there is a step that may be done
	upgradeRefused upgradeState = "refused" // no step may be done now
)

// installedAnswer is the answer of a node's agent about the mysqld on its disk.
type installedAnswer struct {
	cluster.Installed
	err error
}

// upgradeNode is a node in the plan.
type upgradeNode struct {
	Name string         `json:"name"`
	Kind cluster.Kind   `json:"kind"`
	Role status.Role    `json:"role"`
	Runs string         `json:"runs,omitempty"`
	Disk string         `json:"installed,omitempty"`
	Data string         `json:"data,omitempty"`
	Does upgradeStepFor `json:"step,omitempty"`
	// Refused says why its step may not be done, or why there is none.
	Refused string `json:"refused,omitempty"`
}

// upgradeStepFor is the step that a node needs.
type upgradeStepFor string

// The steps of an upgrade.
const (
	stepRestart upgradeStepFor = "restart"
	stepMove    upgradeStepFor = "switchover, restart"
)

// upgradePlan has the steps to do, and which one comes next.
type upgradePlan struct {
	State upgradeState `json:"state"`
	// Next is the node whose step comes next; "" = no step may be done.
	Next  string        `json:"next,omitempty"`
	Nodes []upgradeNode `json:"nodes"`
	// Refused are sentences: why no step may be done.
	Refused []string `json:"refused,omitempty"`
}

// planUpgrade makes the plan after which every node runs the mysqld that is on its disk. A
// replica may be newer than its source, but not older: so the primary is last.
func planUpgrade(st status.Cluster, found map[string]installedAnswer) upgradePlan {
	var p upgradePlan
	for _, n := range st.Nodes {
		p.Nodes = append(p.Nodes, planNode(n, found[n.Name]))
	}
	source := slices.IndexFunc(p.Nodes, func(n upgradeNode) bool { return n.Name == st.Primary })
	var steps []int
	pending := false
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if n.Does != "" && n.Refused == "" && source >= 0 {
			n.Refused = p.besideSource(st, i, source)
		}
		if n.Does == "" && n.Refused == "" && p.older(i, source) {
			n.Refused = fmt.Sprintf("it is older than its source, the primary: install mysqld %s there", p.Nodes[source].Runs)
		}
		pending = pending || n.Does != "" || n.Refused != ""
		if n.Does != "" && n.Refused == "" {
			steps = append(steps, i)
		}
	}
	if !pending {
		p.State = upgradeDone
		return p
	}
	p.State = upgradeRefused
	mends := func(i int) bool { return p.mends(st, i, source) }
	p.Refused = unsafe(st, mends)
	if len(p.Refused) > 0 || len(steps) == 0 {
		return p
	}
	turn := func(i int) int {
		switch {
		case mends(i):
			return -1
		case p.Nodes[i].Does == stepMove:
			return 2
		case p.Nodes[i].Kind == cluster.KindLearner:
			return 0
		}
		return 1
	}
	next := slices.MinFunc(steps, func(i, j int) int {
		return cmp.Or(turn(i)-turn(j), st.Nodes[i].Weight-st.Nodes[j].Weight)
	})
	p.State, p.Next = upgradeNext, p.Nodes[next].Name
	return p
}

// keepLogins refuses the steps after which accounts could not log in any more, from the first replica on: there
// nobody would notice until the primary has moved.
func (p *upgradePlan) keepLogins(primary string, found map[string]installedAnswer) {
	var without []string
	for _, n := range p.Nodes {
		if n.Does != "" && !hasNativePassword(n.Disk, found[n.Name].NativePassword) {
			without = append(without, n.Name)
		}
	}
	accounts := found[primary].NativeAccounts
	if primary == "" || len(without) == 0 || accounts != nil && len(accounts) == 0 {
		return
	}
	why := fmt.Sprintf("node %s does not say which accounts log in with %s", primary, mysqld.NativePassword)
	if accounts != nil {
		why = fmt.Sprintf("accounts log in with %s, such as %s", mysqld.NativePassword, oneLine(strings.Join(accounts, ", ")))
	}
	p.State, p.Next = upgradeRefused, ""
	p.Refused = append(p.Refused, fmt.Sprintf("%s, which the mysqld installed on %s does not have: give these accounts caching_sha2_password (ALTER USER … IDENTIFIED WITH caching_sha2_password BY …), or go on without them: quorate upgrade next --force",
		why, strings.Join(without, ", ")))
}

// hasNativePassword tells whether a version has mysql_native_password; on: the configuration turns it on.
func hasNativePassword(version string, on bool) bool {
	v, err := install.ParseVersion(version)
	return err != nil || !v.AtLeast(8, 4, 0) || on && !v.AtLeast(9, 0, 0)
}

// planNode looks at one node, without the others.
func planNode(n status.Node, f installedAnswer) upgradeNode {
	u := upgradeNode{Name: n.Name, Kind: n.Kind, Role: n.Role, Runs: n.ServerVersion, Disk: f.Version, Data: f.Data}
	switch {
	case n.Kind == cluster.KindLogger:
		return u
	case !n.Reachable:
		u.Role, u.Runs, u.Refused = "", "", "it is not heard of: its role and its versions are not known"
		return u
	case f.err != nil:
		u.Refused = "its agent does not say which mysqld is on its disk: " + oneLine(f.err.Error())
		return u
	case n.Role != status.RolePrimary && n.Role != status.RoleReplica:
		u.Refused = notUp(n, u)
		return u
	case u.Runs == u.Disk:
		return u
	}
	u.Does = stepRestart
	if n.Role == status.RolePrimary {
		u.Does = stepMove
	}
	u.Refused = wrongStep(u.Runs, u.Disk)
	return u
}

// notUp says why a node's mysqld does not take part, and what to do.
func notUp(n status.Node, u upgradeNode) string {
	why := fmt.Sprintf("it is %s: %s", n.Role, cmp.Or(oneLine(n.Reason), "see quorate status"))
	if n.Mysqld == status.MysqldRunning || u.Runs == "" || u.Runs == u.Disk {
		return why
	}
	again := fmt.Sprintf("%s. To go back, install mysqld %s there again", why, u.Runs)
	rebuild := "quorate node rebuild " + n.Name
	data, err := install.ParseVersion(u.Data)
	runs, wrong := install.ParseVersion(u.Runs)
	switch {
	case errors.Join(err, wrong) == nil && data.Compare(runs) <= 0:
		return again + ": its data are still of that version"
	case u.Data == "":
		return again + ". If it does not start, its data have been upgraded: then run " + rebuild
	}
	return fmt.Sprintf("%s. It cannot start the data, which are of %s: then run %s", again, u.Data, rebuild)
}

// besideSource says why node i, whose mysqld runs, may not take its step while the others run their versions: MySQL
// replicates only to a server of the same version, or to a newer one up to the next LTS series.
func (p *upgradePlan) besideSource(st status.Cluster, i, source int) string {
	if i != source {
		if why := wrongStep(p.Nodes[source].Runs, p.Nodes[i].Disk); why != "" {
			return "the primary would be its source: " + why
		}
		return ""
	}
	takes := false
	for j, n := range p.Nodes {
		if j == i || n.Kind == cluster.KindLogger {
			continue
		}
		switch {
		case n.Runs == "" || n.Disk == "":
			return fmt.Sprintf("the version of %s has to be known first", n.Name)
		case wrongStep(p.Nodes[i].Disk, n.Runs) != "" && n.Disk == n.Runs:
			return fmt.Sprintf("%s would be older than its source: install mysqld %s there first", n.Name, p.Nodes[i].Disk)
		case wrongStep(p.Nodes[i].Disk, n.Runs) != "":
			return fmt.Sprintf("%s would be older than its source: it comes first", n.Name)
		}
		takes = takes || st.Nodes[j].CanTakeOver()
	}
	if !takes {
		return "no other node can take over"
	}
	return ""
}

// older tells whether node i is older than its source: after a failover in the middle of an upgrade.
func (p *upgradePlan) older(i, source int) bool {
	if source < 0 {
		return false
	}
	from, err := install.ParseVersion(p.Nodes[source].Runs)
	runs, wrong := install.ParseVersion(p.Nodes[i].Runs)
	return errors.Join(err, wrong) == nil && runs.Compare(from) < 0
}

// mends tells whether node i's step is what makes it apply again: it is older than its source, and does not know what
// the source writes.
func (p *upgradePlan) mends(st status.Cluster, i, source int) bool {
	n := p.Nodes[i]
	return st.Nodes[i].ApplierStopped != "" && n.Does == stepRestart && n.Refused == "" && p.older(i, source)
}

// wrongStep says why MySQL does not go from one version to another; "" = it does.
func wrongStep(from, to string) string {
	a, err := install.ParseVersion(from)
	b, wrong := install.ParseVersion(to)
	if err = errors.Join(err, wrong); err != nil {
		return err.Error()
	}
	if b.Compare(a) < 0 {
		return fmt.Sprintf("%s is older than %s, and MySQL does not go back: install %s again, or a newer one", to, from, from)
	}
	for _, lts := range longTerm() {
		if a.Compare(lts) < 0 && a.Major*100+a.Minor != lts.Major*100+lts.Minor && lts.Major*100+lts.Minor < b.Major*100+b.Minor {
			return fmt.Sprintf("MySQL does not go from %s to %s at once: install %d.%d first", from, to, lts.Major, lts.Minor)
		}
	}
	return ""
}

// longTerm returns the series with long-term support, which no upgrade jumps over.
func longTerm() []install.Version {
	return []install.Version{{Major: 8, Minor: 4}, {Major: 9, Minor: 7}}
}

// unsafe says why no mysqld should be restarted now: even if the restarted mysqld does not come back, the cluster
// must be able to go on. A node whose step mends it is not in the way.
func unsafe(st status.Cluster, mends func(i int) bool) (why []string) {
	if st.Primary == "" {
		why = append(why, noPrimaryText(st))
	}
	if st.Maintenance != nil {
		why = append(why, "maintenance is on, and nobody would take over: quorate maintenance off")
	}
	if q := st.Quorum; q != nil && len(q.Away) > 0 && q.Survives < 1 {
		why = append(why, q.String())
	}
	for i, n := range st.Nodes {
		switch {
		case !n.Reachable || n.Kind == cluster.KindLogger || n.Role == status.RolePrimary || mends(i):
		case n.Role != status.RoleReplica:
			why = append(why, fmt.Sprintf("node %s is %s: mend it first", n.Name, n.Role))
		case n.ApplierStopped != "":
			why = append(why, fmt.Sprintf("node %s does not apply: %s", n.Name, oneLine(n.ApplierStopped)))
		case n.LagUnknown:
			why = append(why, fmt.Sprintf("node %s does not know its lag: wait until quorate status shows it", n.Name))
		}
	}
	return why
}
