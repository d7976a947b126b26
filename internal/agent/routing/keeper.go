package routing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/routermeta"
)

const (
	// lagMax is how far behind a replica may be that takes readers.
	lagMax = 2 * time.Second
	// hideAfter and showAfter keep a replica that is near a limit from being hidden and shown again at every look.
	hideAfter = 2 * time.Second
	showAfter = 5 * time.Second
	// writeEvery is the least time between two writes of one epoch.
	writeEvery = 5 * time.Second
	retryAfter = time.Second
	lookEvery  = time.Minute
	// formerMax bounds for how long a new primary waits, before it tells Router of itself, until the former primary
	// lets clients in again. A client that connects there meanwhile gets error 1040, and Router tries again. If
	// Router learned of the new primary just then, each such client would stop one of its threads for 10 s
	// (docs/router.md). formerSilent: a former primary that is not heard for so long has no clients.
	formerMax    = 2 * time.Second
	formerSilent = 500 * time.Millisecond
	formerLook   = 50 * time.Millisecond
	// look is how often the members are looked at when nothing wakes.
	look = 500 * time.Millisecond
	// viewsOfEpoch: a promotion takes the next multiple of it as its view. So a view is newer than all that Router has
	// seen, even where the newest transactions were lost (quorate recover).
	viewsOfEpoch = 1000
)

// Sight is what the primary sees.
type Sight struct {
	Now time.Duration
	// Term is the term of its epoch, Self is its id.
	Term uint64
	Self cluster.NodeID
	// ClusterID and Cluster name the cluster.
	ClusterID, Cluster string
	State              cluster.State
	Nodes              []status.Node
}

// Keeper remembers what Router was told in one epoch, and since when each replica is fit. Its zero value knows nothing.
type Keeper struct {
	term uint64
	// began is when it looked first in this term.
	began time.Duration
	// holds: it waits for the former primary.
	holds bool
	// known: the field is holds what was there at the time read.
	known bool
	is    routermeta.Metadata
	read  time.Duration
	// notBefore is when the next write may be tried; retry is the same after a failure.
	notBefore, retry time.Duration
	fitness          map[cluster.NodeID]fitness
}

type fitness struct {
	fit   bool
	since time.Duration
}

// Look takes what the primary sees, and tells whether Router's metadata should be looked at now, and be made what Want
// says.
func (k *Keeper) Look(s Sight) (due bool) {
	if k.term != s.Term {
		*k = Keeper{term: s.Term, began: s.Now}
	}
	k.observe(s)
	k.holds = s.Now-k.began < formerMax && former(s)
	if s.Now < k.retry || k.holds {
		return false
	}
	if !k.known {
		return true
	}
	if k.Want(s, k.is).Same(k.is) {
		return s.State.MySQLRouter && s.Now-k.read >= lookEvery
	}
	return s.Now >= k.notBefore
}

// Wrote notes what is there now, Failed that it could not be looked at or written.
func (k *Keeper) Wrote(is routermeta.Metadata, wrote bool, now time.Duration) {
	k.known, k.is, k.read = true, is, now
	if wrote {
		k.notBefore = now + writeEvery
	}
}
func (k *Keeper) Failed(now time.Duration) { k.known, k.retry = false, now+retryAfter }

// Reset: this node is not the primary, and what it knew gets old.
func (k *Keeper) Reset() { *k = Keeper{} }

// Next is when to look again if nothing wakes.
func (k *Keeper) Next() time.Duration {
	if k.holds {
		return formerLook
	}
	return look
}

// Is is what Router is told, as far as that is known.
func (k *Keeper) Is() routermeta.Metadata { return k.is }

// Want is what should be there instead of what is found.
func (k *Keeper) Want(s Sight, found routermeta.Metadata) routermeta.Metadata {
	want := routermeta.Metadata{ClusterID: s.ClusterID, Cluster: s.Cluster, View: found.View + 1}
	if !s.State.MySQLRouter {
		// Metadata of another cluster came with a backup that was restored, for example, or from the site that was
		// followed. Removing them would be a transaction that no other cluster has: then this cluster could follow
		// none.
		if len(found.Instances) == 0 || found.ClusterID != s.ClusterID {
			return found
		}
		return want
	}
	for _, m := range s.State.Members {
		if i, ok := k.instance(s, m, found); ok {
			want.Instances = append(want.Instances, i)
		}
	}
	slices.SortFunc(want.Instances, func(a, b routermeta.Instance) int { return strings.Compare(a.Name, b.Name) })
	if want.Primary() != found.Primary() {
		want.View = (found.View/viewsOfEpoch + 1) * viewsOfEpoch
	}
	if want.Same(found) {
		return found
	}
	return want
}

// instance is what Router is told of a member; false = nothing.
func (k *Keeper) instance(s Sight, m cluster.Member, found routermeta.Metadata) (routermeta.Instance, bool) {
	before, is := found.Instance(m.Name)
	n := node(s, m.ID)
	i := routermeta.Instance{Name: m.Name, UUID: cmp.Or(n.ServerUUID, before.UUID), Address: n.MySQLRouter, Primary: m.ID == s.Self}
	if n.Role == "" { // it was not heard yet
		i.Address = before.Address
	}
	switch f := k.fitness[m.ID]; {
	case m.Kind != cluster.KindFull || i.UUID == "" || i.Address == "":
		return routermeta.Instance{}, false
	case i.Primary:
	case f.fit && (!is || before.Primary || s.Now-f.since >= showAfter):
	case !f.fit && (!is || before.Primary || s.Now-f.since >= hideAfter):
		i.Hidden = true
	default:
		i.Hidden = before.Hidden
	}
	return i, true
}

// former tells whether another node was the primary until now, and keeps clients out until its mysqld replicates.
func former(s Sight) bool {
	return slices.ContainsFunc(s.Nodes, func(n status.Node) bool {
		leaves := n.Role == status.RolePrimary || n.Role == status.RoleDemoting || n.Role == status.RoleUnverified
		return n.ID != s.Self && n.Reachable && n.Mysqld == status.MysqldRunning && leaves && n.AgeMs < formerSilent.Milliseconds()
	})
}

func node(s Sight, id cluster.NodeID) status.Node {
	for _, n := range s.Nodes {
		if n.ID == id {
			return n
		}
	}
	return status.Node{}
}

func (k *Keeper) observe(s Sight) {
	before := k.fitness
	k.fitness = map[cluster.NodeID]fitness{}
	for _, m := range s.State.Members {
		f := fitness{fit(node(s, m.ID)), s.Now}
		if old, ok := before[m.ID]; ok && old.fit == f.fit {
			f = old
		}
		k.fitness[m.ID] = f
	}
}

// fit tells whether a replica may take readers.
func fit(n status.Node) bool {
	return n.Reachable && n.Role == status.RoleReplica && n.Mysqld == status.MysqldRunning &&
		!n.LagUnknown && n.ApplierStopped == "" && n.Lag() <= lagMax.Seconds()
}

// OwnWritesLeast is for how long a Router should wait at least until a replica has a session's own writes: a replica that
// lags is hidden long before, which ends the wait. A Router that waits for less reads without them.
const OwnWritesLeast = 30 * time.Second

// namesMax bounds how many Routers a line names.
const namesMax = 3

// Impatient says at which Routers sessions may miss their own writes; "" = none.
func Impatient(names []string) string {
	if len(names) == 0 {
		return ""
	}
	text := strings.Join(names[:min(len(names), namesMax)], ", ")
	if more := len(names) - namesMax; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("sessions at the split port of MySQL Router %s may miss their own writes: "+
		"set wait_for_my_writes_timeout to 60 and max_idle_server_connections to 0 there (docs/router.md)", text)
}

// Unreachable says which members Router is not told of because it cannot reach their mysqld; "" = none.
func Unreachable(s Sight) string {
	var names []string
	for _, m := range s.State.Members {
		if n := node(s, m.ID); m.Kind == cluster.KindFull && n.Role != "" && n.MySQLRouter == "" {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("MySQL Router is not told of %s: mysqld is on loopback alone there, so Router cannot reach it (mysql.bind)", strings.Join(names, ", "))
}
