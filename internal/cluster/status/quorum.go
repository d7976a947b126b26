package status

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

// Sight is what one node knows of the cluster at one moment.
type Sight struct {
	State cluster.State
	// Outgoing are the old voters while a change of the voters is not complete (StatePoint).
	Outgoing []cluster.NodeID
	Nodes    []Node
	// Primary is the name of the node that is open for writes; "" = none.
	Primary string
}

// Quorum says whether writes can go on, and how many failures they survive now.
type Quorum struct {
	// Voters are the members with a vote. Running are those of them that are heard and whose logs take entries.
	// Needed is how many have to run.
	Voters  []string `json:"voters"`
	Running []string `json:"running"`
	Needed  int      `json:"needed"`
	// Survives is how many nodes may fail, whichever they are, with their agent or their host, so that writes
	// go on without anybody's help, perhaps after a failover. -1: writes cannot go on now.
	Survives int `json:"survives"`
	// Limit is a sentence that is set if something else than the number of voters limits Survives.
	Limit string `json:"limit,omitempty"`
	// Away are sentences that say why the other voters do not run.
	Away []string `json:"away,omitempty"`
	// Start are the smallest sets of nodes such that writes go on by themselves once the agents of any one set
	// are started. Empty: writes need no start, or no start would help (Limit).
	Start [][]string `json:"start,omitempty"`
	// Allow are commands, set if a majority runs and no node of it may be the primary. Any one of them lets a node
	// be the primary.
	Allow []string `json:"allow,omitempty"`
}

// seat is a member, or an old voter, in a sight.
type seat struct {
	cluster.Member
	votes, voted bool // it is among the present voters, among the old voters
	runs         bool
	away         predicate // why it does not run
	startable    bool      // it is not heard
	opens        bool      // it is the primary, or could be at once
	may          bool      // it could be the primary, sooner or later, without a person's help
	mayNot       string    // why it may not
	allow        string    // the command after which it may; "" = there is none
	old          string    // the version of the older quorate that it runs; "" = it promises leases, or is not known
}

// seats is a set of seats, by their positions. There are at most 18: the members and the old voters.
type seats uint32

type view struct {
	Sight
	all []seat
}

func (s Sight) view() view {
	v := view{Sight: s}
	byID := map[cluster.NodeID]Node{}
	for _, n := range s.Nodes {
		byID[n.ID] = n
	}
	for _, m := range s.State.Members {
		v.all = append(v.all, s.seat(m, byID[m.ID]))
	}
	for _, id := range s.Outgoing {
		i := slices.IndexFunc(v.all, func(st seat) bool { return st.ID == id })
		if i < 0 {
			n := byID[id]
			v.all = append(v.all, s.seat(cluster.Member{ID: id, Name: cmp.Or(n.Name, "a former voter"), Kind: cluster.KindLearner}, n))
			i = len(v.all) - 1
		}
		v.all[i].voted = true
	}
	return v
}

func (s Sight) seat(m cluster.Member, n Node) seat {
	st := seat{Member: m, votes: m.Votes()}
	if n.ElectionTimeout == 0 {
		st.old = n.AgentVersion
	}
	n.Kind, n.Weight = m.Kind, m.Weight
	refusal := n.Refusal.away(m.Name)
	switch {
	case !n.Reachable && refusal != predicate{}:
		st.away = refusal // it runs, so a start would not help
	case !n.Reachable && n.Unreached != "":
		st.away = predicate{is, "not reached"}
	case !n.Reachable:
		st.away, st.startable = predicate{is, "not heard of"}, true
	case n.StateVersion != nil && !n.Knows(s.State.Format()): // nil: a node that is to be added
		st.away = predicate{has, "an older quorate, which refuses the cluster state: upgrade it"}
	case n.LogState != "" && n.LogState != LogOK:
		st.away = predicate{has, "a log that is " + string(n.LogState)}
	case n.Role.Outside() != "" || n.Leaving:
		st.away = predicate{is, string(n.Role)}
	}
	st.runs = st.away == predicate{}
	switch held := s.State.Maintenance; {
	case m.Kind != cluster.KindFull:
		st.mayNot = "is a " + string(m.Kind)
	case m.Weight == 0:
		st.mayNot, st.allow = "has weight 0", fmt.Sprintf("quorate node set %s --weight %d", m.Name, cluster.WeightDefault)
	case held != nil && held.Primary != m.Name:
		st.mayNot, st.allow = "may not open while maintenance is on", "quorate switchover --to "+m.Name
	case n.Role == RoleFenced, n.Role == RoleErrant:
		st.mayNot = "is " + string(n.Role)
	}
	st.may = st.mayNot == ""
	if n.Role == RoleFenced || n.Role == RoleErrant || m.Weight == 0 && s.State.Maintenance != nil {
		st.allow = "" // it is not the only thing in the way
	}
	st.opens = st.may && (n.CanTakeOver() || n.Reachable && (n.Role == RolePrimary || n.Role == RolePromoting))
	return st
}

// set returns the seats for which is returns true.
func (v view) set(is func(seat) bool) (set seats) {
	for i, st := range v.all {
		if is(st) {
			set |= 1 << i
		}
	}
	return set
}

func (v view) names(set seats) (names []string) {
	for i, st := range v.all {
		if set&(1<<i) != 0 {
			names = append(names, st.Name)
		}
	}
	return names
}

func majority(there, of seats) bool {
	return bits.OnesCount32(uint32(there&of)) > bits.OnesCount32(uint32(of))/2
}

// hasMajority tells whether these nodes can elect a leader and commit.
func (v view) hasMajority(there seats) bool {
	voted := v.set(func(s seat) bool { return s.voted })
	return majority(there, v.set(func(s seat) bool { return s.votes })) && (voted == 0 || majority(there, voted))
}

// stuck says why a running majority would take no writes with only these nodes; "" = it would. One of the nodes
// in opens has to be there.
func (v view) stuck(there, opens seats) string {
	if there&opens == 0 {
		return "no node that runs may be the primary"
	}
	if why := v.noLease(there, opens); why != "" {
		return why
	}
	on, dropped := map[cluster.NodeID]uint64{}, map[cluster.NodeID]bool{}
	for i, s := range v.all {
		dropped[s.ID] = true // they would be dropped in time, if they have a drop-after
		if there&(1<<i) != 0 {
			on[s.ID] = 1
		}
	}
	var waits []string
	for _, m := range v.State.AckWaitsFor(1, on, dropped) {
		waits = append(waits, m.Name)
	}
	switch {
	case len(waits) == 0:
		return ""
	case v.State.Durability == cluster.DurabilitySiteMajority:
		return fmt.Sprintf("OKs wait for %s (durability %s)", list(waits, "or"), v.State.Durability)
	case v.State.Durability == cluster.DurabilityAll:
		return fmt.Sprintf("OKs wait for %s (durability %s)", list(waits, "and"), v.State.Durability)
	}
	return fmt.Sprintf("OKs wait for %s (require-ack)", list(waits, "and"))
}

// noLease says why none of these nodes would get a lease as the leader (NoLease); "" = one of them would, or
// runs an older quorate, which needs none.
func (v view) noLease(there, opens seats) string {
	old := v.set(func(s seat) bool { return s.old != "" })
	if there&old == 0 || there&opens&old != 0 {
		return ""
	}
	var nodes []Node
	var before []cluster.Member
	for i, s := range v.all {
		if s.voted {
			before = append(before, cluster.Member{ID: s.ID, Name: s.Name, Kind: cluster.KindLogger})
		}
		n := Node{ID: s.ID, Reachable: there&(1<<i) != 0, AgentVersion: s.old}
		if s.old == "" {
			n.ElectionTimeout = 1 // any timeout
		}
		nodes = append(nodes, n)
	}
	return cmp.Or(NoLease(v.State.Members, nodes), NoLease(before, nodes))
}

// writes tells whether writes go on with only these nodes.
func (v view) writes(there, opens seats) bool {
	return v.hasMajority(there) && v.stuck(there, opens) == ""
}

// Quorum says what is seen of the quorum.
func (s Sight) Quorum() Quorum {
	v := s.view()
	voters, running := v.set(func(s seat) bool { return s.votes }), v.set(func(s seat) bool { return s.runs })
	opens := v.set(func(s seat) bool { return s.opens })
	q := Quorum{
		Voters: v.names(voters), Running: v.names(voters & running), Needed: bits.OnesCount32(uint32(voters))/2 + 1,
	}
	q.Away = v.away()
	if !v.writes(running, opens) {
		q.Survives = -1
		v.missing(&q, running)
		return q
	}
	for k := 1; ; k++ { // this ends: if all running nodes are lost, nothing goes on
		fatal, limit := false, ""
		for lost := range subsets(running, k) {
			there := running &^ lost
			switch {
			case v.writes(there, opens):
			case !v.hasMajority(there):
				fatal, limit = true, "" // the number of voters is the reason
			case !fatal:
				fatal, limit = true, v.limit(there, lost, opens)
			}
			if fatal && limit == "" {
				break
			}
		}
		if fatal {
			q.Survives, q.Limit = k-1, limit
			return q
		}
	}
}

// away says why voters do not run.
func (v view) away() (sentences []string) {
	names := map[predicate][]string{}
	var whys []predicate
	for _, s := range v.all {
		if (s.votes || s.voted) && !s.runs {
			if names[s.away] == nil {
				whys = append(whys, s.away)
			}
			names[s.away] = append(names[s.away], s.Name)
		}
	}
	for _, why := range whys {
		sentences = append(sentences, why.of(names[why]))
	}
	return sentences
}

// predicate is what a sentence says of nodes: a verb and the rest.
type predicate struct {
	verb verb
	rest string
}

// verb is a verb in the form for one node.
type verb string

const (
	is      verb = "is"
	has     verb = "has"
	refuses verb = "refuses"
)

// of returns the sentence about these nodes.
func (p predicate) of(names []string) string {
	says := p.verb
	if len(names) > 1 {
		says = map[verb]verb{is: "are", has: "have", refuses: "refuse"}[says]
	}
	return fmt.Sprintf("%s %s %s", list(names, "and"), says, p.rest)
}

// limit says why a majority would take no writes without the lost nodes.
func (v view) limit(there, lost, opens seats) string {
	if there&opens == 0 {
		if v.State.Maintenance != nil {
			return fmt.Sprintf("maintenance is on, no node but %s may be the primary", list(v.names(lost&opens), "or"))
		}
		return fmt.Sprintf("without %s no node could be the primary", list(v.names(lost), "and"))
	}
	if v.State.Durability == cluster.DurabilityAll {
		return fmt.Sprintf("OKs wait for every voter (durability %s)", v.State.Durability)
	}
	return v.stuck(there, opens)
}

// changeIncomplete is the Limit if a majority of the voters runs, and no majority of the old voters.
const changeIncomplete = "a change of the members is not complete, and a majority of the old voters has to run, too"

// missing says what is needed for writes to go on.
func (v view) missing(q *Quorum, running seats) {
	may := v.set(func(s seat) bool { return s.may })
	if v.hasMajority(running) {
		q.Limit = v.stuck(running, may)
		if q.Limit != "" && running&may == 0 {
			q.Limit += v.whyNobody(running)
			q.Allow = v.allowed(running)
		}
	} else if v.set(func(s seat) bool { return s.voted }) != 0 && len(q.Running) >= q.Needed {
		q.Limit = changeIncomplete
	}
	if !v.writes(running, may) {
		q.Start = v.starts(running, v.set(func(s seat) bool { return s.startable }))
	}
}

// whyNobody says why the running full nodes may not be the primary.
func (v view) whyNobody(running seats) string {
	var why []string
	for i, s := range v.all {
		if s.Kind == cluster.KindFull && running&(1<<i) != 0 {
			why = append(why, s.Name+" "+s.mayNot)
		}
	}
	if len(why) == 0 {
		return ""
	}
	return ": " + strings.Join(why, ", ")
}

// allowed returns commands. Any one of them lets a running node be the primary.
func (v view) allowed(running seats) []string {
	for i, s := range v.all {
		if running&(1<<i) == 0 || s.allow == "" || v.stuck(running, 1<<i) != "" {
			continue
		}
		if v.State.Maintenance != nil {
			return []string{s.allow, "quorate maintenance off"}
		}
		return []string{s.allow}
	}
	return nil
}

// starts returns the smallest sets of candidates that have to be added to the running nodes for writes to go
// on.
func (v view) starts(running, candidates seats) (sets [][]string) {
	may := v.set(func(s seat) bool { return s.may })
	var found []seats
	for k := 1; k <= bits.OnesCount32(uint32(candidates)); k++ {
		for more := range subsets(candidates, k) {
			has := func(smaller seats) bool { return more&smaller == smaller }
			if !slices.ContainsFunc(found, has) && v.writes(running|more, may) {
				found = append(found, more)
			}
		}
	}
	for _, set := range found {
		sets = append(sets, v.names(set))
	}
	return sets
}

// subsets yields the subsets of a set that have k seats.
func subsets(of seats, k int) func(yield func(seats) bool) {
	return func(yield func(seats) bool) {
		for sub := -of & of; sub != 0; sub = (sub - of) & of { // in ascending order
			if bits.OnesCount32(uint32(sub)) == k && !yield(sub) {
				return
			}
		}
	}
}

// Outside says why a node with this role takes no part in the cluster; "" = it takes part. What such a node
// hears of others says nothing about their quorum.
func (r Role) Outside() string {
	switch r {
	case RoleRemoved:
		return "this node is not in the cluster"
	case RoleJoining:
		return "this node joins the cluster"
	case RoleForming:
		return "the cluster forms, all its initial members must start"
	}
	return ""
}

// without returns the sets of nodes of which one has to be back before writes go on, once a node is gone with
// its agent; nil = writes go on without it, if another node can take over.
func (s Sight) without(name string) [][]string {
	v := s.view()
	gone := v.set(func(s seat) bool { return s.Name == name })
	running := v.set(func(s seat) bool { return s.runs }) &^ gone
	if v.writes(running, v.set(func(s seat) bool { return s.may })) {
		return nil
	}
	return v.starts(running, gone|v.set(func(s seat) bool { return s.startable }))
}

// String says in one line how many failures a cluster with a primary survives.
func (q Quorum) String() string {
	line := fmt.Sprintf("%d of %d voters run", len(q.Running), len(q.Voters))
	if len(q.Away) > 0 {
		line += ", " + strings.Join(q.Away, ", ")
	}
	if q.Limit != "" {
		line += "; " + q.Limit
	}
	switch {
	case q.Survives < 0:
		return "writes cannot go on: " + line
	case q.Survives == 0 && len(q.Away) > 0:
		return "survives no further failure: " + line
	case q.Survives == 0:
		return "survives no failure: " + line
	case q.Survives == 1:
		return "survives the failure of any 1 node: " + line
	}
	return fmt.Sprintf("survives the failure of any %d nodes: %s", q.Survives, line)
}

// NoPrimary says in lines what a cluster without a primary waits for. self is the name of the node that says
// so: nodes that it does not hear may be down, or it is cut off from them.
func (q Quorum) NoPrimary(self string) []string {
	counts := fmt.Sprintf("%d of %d voters run, a majority", len(q.Running), len(q.Voters))
	majority := len(q.Running) >= q.Needed
	if !majority {
		counts = fmt.Sprintf("%d of %d voters must run, and %d does: %s", q.Needed, len(q.Voters), len(q.Running), list(q.Running, "and"))
		if len(q.Running) != 1 {
			counts = fmt.Sprintf("%d of %d voters must run, and %d do", q.Needed, len(q.Voters), len(q.Running))
			if len(q.Running) > 0 {
				counts += ": " + list(q.Running, "and")
			}
		}
	}
	limit := q.Limit
	if q.Survives >= 0 {
		limit = "" // it would be a limit for the time after that
	}
	if limit != "" {
		counts += ", but " + limit
	}
	if len(q.Away) > 0 {
		counts += " (" + strings.Join(q.Away, ", ") + ")"
	}
	if len(q.Start) == 0 {
		if majority && limit == "" {
			counts += ": no agent has to be started"
		}
		if len(q.Allow) > 0 {
			return []string{counts + ".", "Let a node open: " + q.allow() + "."}
		}
		return []string{counts + ". What each node waits for is below."}
	}
	gone := "If disks are gone for good: docs/operations.md, \"A majority is gone for good\"."
	switch {
	case len(q.Allow) > 0:
		gone = "Or let another node open: " + q.allow() + "."
	case majority && q.Limit != changeIncomplete:
		gone = "If disks are gone for good: docs/runbook.md, \"QuorateNoPrimary\"."
	}
	return []string{
		fmt.Sprintf("%s. Start the agent%s on %s: nothing is lost, and writes go on by themselves.", counts, plural(q.Start), anyOf(q.Start)),
		fmt.Sprintf("If one of these agents runs already, node %s is cut off from it: see `quorate status` there.", self),
		gone,
	}
}

// allow lists the commands of Allow.
func (q Quorum) allow() string {
	return "`" + strings.Join(q.Allow, "`, or `") + "`"
}

// back says that the nodes of one of the sets are back.
func back(sets [][]string) string {
	switch {
	case len(sets) == 0: // impossible: with the primary back everything is as now
		return "it is back"
	case len(sets[0]) > 1:
		return anyOf(sets) + " are back"
	}
	return anyOf(sets) + " is back"
}

// plural returns an s if every set has several nodes.
func plural(sets [][]string) string {
	if len(sets[0]) > 1 {
		return "s"
	}
	return ""
}

// setsShownMax bounds how many sets of nodes are written out.
const setsShownMax = 4

// anyOf says in words that any one of the sets of nodes is enough. The smallest sets come first.
func anyOf(sets [][]string) string {
	all := map[string]bool{}
	var names, texts []string
	size := len(sets[0])
	for _, set := range sets {
		for _, name := range set {
			if !all[name] {
				all[name] = true
				names = append(names, name)
			}
		}
		texts = append(texts, list(set, "and"))
		if len(set) != size {
			size = 0
		}
	}
	slices.Sort(names)
	switch {
	case size == 1:
		return list(names, "or")
	case len(sets) > 1 && size > 0 && len(sets) == choose(len(names), size):
		return fmt.Sprintf("any %d of %s", size, list(names, "and"))
	case len(texts) > setsShownMax:
		texts = append(texts[:setsShownMax], "others")
	}
	return strings.Join(texts, ", or ")
}

// choose returns how many subsets of k elements a set of n has.
func choose(n, k int) int {
	sets := 1
	for i := range k {
		sets = sets * (n - i) / (i + 1)
	}
	return sets
}

// list joins names as in a sentence: a, b and c.
func list(names []string, word string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " " + word + " " + names[last]
}
