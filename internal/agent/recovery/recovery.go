package recovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Log is what a node's log holds, whether it is known to be committed or not.
type Log struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Term is the term of the last entry.
	Term   uint64 `json:"term"`
	Commit uint64 `json:"commit"`
	// GTIDs are all transactions up to Last, as text.
	GTIDs string `json:"gtids"`
}

// newerThan is Raft's order of logs: a node whose log is behind gets no vote.
func (l Log) newerThan(other Log) bool {
	return l.Term > other.Term || l.Term == other.Term && l.Last > other.Last
}

// Report is what a node says of itself when it is asked.
type Report struct {
	Node string `json:"node"`
	Log  Log    `json:"log"`
	// Leader is the name of the leader that it follows, or its own; "" = none.
	Leader string `json:"leader,omitempty"`
	// Hears names the members whose agents it hears.
	Hears []string `json:"hears,omitempty"`
	// Out says why it does not belong to the cluster any more, and so elects nobody;
	// "" = it belongs to it.
	Out string `json:"out,omitempty"`
	// Recovers: its agent does not run, and it may be about to go on alone itself.
	Recovers bool `json:"recovers,omitempty"`
}

// Caller is a node of the cluster that dialled the survivor while it was judged, or that was asked although it is no member
// as the survivor knows the members. What it says of itself is not proven.
type Caller struct {
	Name string `json:"name"`
	// From is the address from which it came, or at which it answers.
	From string `json:"from"`
	// Stranger: it is no member as the survivor knows the members, or comes with a data directory that the survivor
	// does not know. So the members were changed while the survivor was away.
	Stranger bool `json:"stranger"`
	// Said is what it answered; "" = it dialled.
	Said string `json:"said,omitempty"`
}

// Finding is what was learned of a member.
type Finding struct {
	Name string `json:"name"`
	// Voter: it counts for the majority.
	Voter bool `json:"voter"`
	// Reachable: an agent of that name answers. Refuses: it refuses the survivor, or the
	// survivor refuses it; so another node may have the survivor's place.
	Reachable bool `json:"reachable"`
	Refuses   bool `json:"refuses,omitempty"`
	// Problem says why there is no Report: why it cannot be reached, or does not say
	// what it has.
	Problem string  `json:"problem,omitempty"`
	Report  *Report `json:"report,omitempty"`
	// Lacking is what its log has and the survivor's log lacks. Check sets it.
	Lacking string `json:"lacking,omitempty"`
}

// Situation is everything that the decision goes by.
type Situation struct {
	Cluster string `json:"cluster"`
	// Survivor is the name of the node that is to go on, Log what it has.
	Survivor string `json:"survivor"`
	Log      Log    `json:"log"`
	// Mysqld: it has a mysqld, or can have one: it is no logger.
	Mysqld bool `json:"mysqld"`
	// Out says why it does not belong to the cluster any more; "" = it belongs to it.
	Out string `json:"out,omitempty"`
	// Fenced says that an operator keeps its mysqld down: who, when, why; "" = nobody does.
	Fenced string `json:"fenced,omitempty"`
	// Voters are the names of all voters; Outgoing are the names of the old voters while a change
	// of the voters is not complete.
	Voters   []string `json:"voters"`
	Outgoing []string `json:"outgoing,omitempty"`
	// Nodes are the other members.
	Nodes []Finding `json:"nodes"`
	// Callers are the nodes that dialled the survivor.
	Callers []Caller `json:"callers,omitempty"`
}

// Objection is something that speaks against going on.
type Objection struct {
	Text string `json:"text"`
	// Final: nothing that a person says outweighs it.
	Final bool `json:"final"`
}

// Verdict is what Check finds.
type Verdict struct {
	Situation
	// Lacking are the transactions that some node that answers has, and the survivor
	// lacks. What only nodes have that do not answer is not known.
	Lacking string `json:"lacking"`
	// LackingCount is their number. Unknown names the members that do not say what they
	// have.
	LackingCount uint64      `json:"lacking_count"`
	Unknown      []string    `json:"unknown"`
	Objections   []Objection `json:"objections"`
}

// Check says what speaks against going on with the survivor, and what would be lost.
func Check(s Situation) (Verdict, error) {
	v := Verdict{Situation: s, Unknown: []string{}, Objections: []Objection{}}
	v.Nodes = slices.Clone(s.Nodes)
	own, err := gtid.ParseSet(s.Log.GTIDs)
	if err != nil {
		return v, fmt.Errorf("read the survivor's transactions: %w", err)
	}
	lacking := &gtid.Set{}
	v.hear()
	for i, n := range v.Nodes {
		if n.Report == nil {
			v.Unknown = append(v.Unknown, n.Name)
			continue
		}
		set, err := gtid.ParseSet(n.Report.Log.GTIDs)
		if err != nil {
			return v, fmt.Errorf("read the transactions of node %s: %w", n.Name, err)
		}
		set.Subtract(own)
		v.Nodes[i].Lacking = set.String()
		lacking.Union(set)
	}
	v.Lacking, v.LackingCount = lacking.String(), lacking.Count()
	v.weigh()
	return v, nil
}

// hear takes a member that dials the survivor for a node that runs, even if it does not answer.
func (v *Verdict) hear() {
	for i, n := range v.Nodes {
		at := slices.IndexFunc(v.Callers, func(c Caller) bool { return c.Name == n.Name && !c.Stranger })
		if at >= 0 && !n.Reachable {
			v.Nodes[i].Reachable = true
			v.Nodes[i].Problem = fmt.Sprintf("it dials this node from %s, and this node does not reach it: %s", v.Callers[at].From, n.Problem)
		}
	}
}

// weigh collects the objections, the final ones first.
func (v *Verdict) weigh() {
	if there, voters := v.majority(); there != nil {
		v.object(true, "there is nothing to recover: %s", v.startInstead(there, voters))
	} else if there, voters := v.majorityBeside(); there != nil {
		v.object(true, "a majority of the %d voters may run without the data of this node, because these nodes answer: %s; look at \"quorate status\" there; "+
			"only if they are not to go on, stop their agents first", voters, strings.Join(there, ", "))
	}
	for _, c := range v.Callers {
		switch {
		case c.Said != "":
			v.object(true, "node %s, which [[added]] in the node.toml of node %s names, answers at %s: %s. The cluster may run without node %s. "+
				"Look at \"quorate status\" there first. If the cluster runs, do not recover: see \"A node knows none of the members\" in docs/runbook.md. "+
				"If it is not to go on, or if that node only waits to join, stop its agent, and try again", c.Name, v.Survivor, c.From, c.Said, v.Survivor)
		case c.Stranger:
			v.object(true, "node %s of this cluster dials this node from %s, and node %s does not know it (or knows it with another data directory): "+
				"the members were changed, or that node was to be rebuilt, while node %s was away, and the cluster may run without it. Look at \"quorate status\" there first. If the cluster runs, do not recover: "+
				"see \"A node knows none of the members\" in docs/runbook.md. If it is not to go on, or if that node only waits to join, stop its agent, "+
				"or close this node's peer port to %s by a firewall, and try again",
				c.Name, c.From, v.Survivor, v.Survivor, c.From)
		}
	}
	for _, n := range v.Nodes {
		if n.Report != nil && n.Report.Recovers {
			v.object(true, "\"quorate recover\" runs on node %s, too: two nodes must not go on apart. End the command on one of them and start the agent there; then try again on the other", n.Name)
		}
		if n.Report != nil && n.Report.Leader != "" {
			v.object(true, "node %s follows a leader, %s: there is a majority that this host does not see", n.Name, n.Report.Leader)
		}
	}
	if !v.Mysqld && v.Log.First > 1 {
		v.object(true, "node %s is a logger, and its log begins at entry %d: no mysqld can be built from it; recover on a full node",
			v.Survivor, v.Log.First)
	}
	if v.Out != "" {
		v.object(false, "%s", v.Out)
	}
	if best := v.best(); best != "" {
		v.object(false, "node %s has a newer log: recover on that node", best)
	}
	for _, n := range v.Nodes {
		switch {
		case n.Reachable && n.Report == nil:
			v.object(false, "node %s answers, but does not say what it has: %s", n.Name, n.Problem)
		case n.Report != nil && n.Report.Out != "":
			v.object(false, "%s", n.Report.Out)
		}
	}
}

// startInstead says what to do if a majority needs no recovery. Only the leader knows
// whether a log that is behind is an older copy, with which no agent goes on.
func (v *Verdict) startInstead(there []string, voters int) string {
	text := fmt.Sprintf("node %s is the only voter", v.Survivor)
	switch others := slices.DeleteFunc(slices.Clone(there), func(name string) bool { return name == v.Survivor }); {
	case len(others) == len(there):
		text = fmt.Sprintf("%s of the %d voters are up: a majority, which elects by itself", strings.Join(there, ", "), voters)
	case len(others) > 0:
		text = fmt.Sprintf("%s of the %d voters are up: with node %s they are a majority, which elects by itself", strings.Join(others, ", "), voters, v.Survivor)
	}
	text += fmt.Sprintf("; start the agent of node %s", v.Survivor)
	if v.best() != "" {
		text += fmt.Sprintf("; if it ends because its data are an older copy, put the newest data_dir back, or \"quorate node rebuild %s\" on another node, and start it again", v.Survivor)
	}
	return text
}

func (v *Verdict) object(final bool, format string, args ...any) {
	v.Objections = append(v.Objections, Objection{Text: fmt.Sprintf(format, args...), Final: final})
}

// majority returns the voters that are there, and the number of voters, if these can elect a
// leader; nil if not. While the voters change that takes a majority of the old and of the new.
func (v *Verdict) majority() (there []string, voters int) {
	up := v.up()
	for _, n := range v.Nodes { // without a report, a node may take no part in elections, even if others hear it
		if n.Reachable && n.Report == nil {
			delete(up, n.Name)
		}
	}
	up[v.Survivor] = v.Out == "" // a node that is out elects nobody
	for _, of := range [][]string{v.Voters, v.Outgoing} {
		here := among(up, of)
		if len(of) > 0 && len(here) <= len(of)/2 {
			return nil, 0
		}
		if there == nil {
			there, voters = here, len(of)
		}
	}
	return there, voters
}

// majorityBeside returns the voters that answer, and the number of voters, if they may be a
// majority without the survivor, whether they say what they have or not; nil if not. If one
// of them refuses the survivor, another node may have its place. The survivor may not know
// whether a change of the voters was completed, or never made: so either majority counts.
func (v *Verdict) majorityBeside() (there []string, voters int) {
	up := v.up()
	delete(up, v.Survivor)
	refused := slices.ContainsFunc(v.Nodes, func(n Finding) bool { return n.Refuses })
	for _, of := range [][]string{v.Voters, v.Outgoing} {
		there = among(up, of)
		votes := len(there)
		if refused && slices.Contains(of, v.Survivor) {
			votes++
		}
		if len(there) > 0 && votes > len(of)/2 {
			return there, len(of)
		}
	}
	return nil, 0
}

// up returns the other members that answer, or that a member that answers hears, except
// those that are out, and those whose agents do not run.
func (v *Verdict) up() map[string]bool {
	up := map[string]bool{}
	for _, n := range v.Nodes {
		if n.Reachable {
			up[n.Name] = true
		}
		if n.Report == nil {
			continue
		}
		for _, name := range n.Report.Hears {
			up[name] = true
		}
	}
	for _, n := range v.Nodes {
		if n.Report != nil && (n.Report.Out != "" || n.Report.Recovers) {
			delete(up, n.Name)
		}
	}
	return up
}

// among returns which of the names are up.
func among(up map[string]bool, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !up[name] })
}

// best returns the name of the node with the newest log, if that is newer than the
// survivor's; "" if none is.
func (v *Verdict) best() (name string) {
	newest := v.Log
	for _, n := range v.Nodes {
		if n.Report != nil && n.Report.Log.newerThan(newest) {
			newest, name = n.Report.Log, n.Name
		}
	}
	return name
}

// None is what stands for an empty set of transactions.
const None = "none"

// Refusal returns why the recovery may not be made; "" = it may be made. accepted is what a
// person says is given up: None or a set of GTIDs; "" = the person has said nothing.
func (v *Verdict) Refusal(accepted string) (why string, err error) {
	for _, o := range v.Objections {
		if o.Final || accepted == "" {
			return o.Text, nil
		}
	}
	if accepted == "" {
		if v.LackingCount > 0 {
			return fmt.Sprintf("%d transactions of other nodes would be lost: %s; --accept-loss with exactly these gives them up",
				v.LackingCount, v.Lacking), nil
		}
		return "", nil
	}
	named := &gtid.Set{}
	if accepted != None {
		if named, err = gtid.ParseSet(accepted); err != nil {
			return "", fmt.Errorf("it is %q or a set of GTIDs: %w", None, err)
		}
	}
	lacking, err := gtid.ParseSet(v.Lacking)
	if err != nil {
		return "", fmt.Errorf("read the lacking transactions: %w", err)
	}
	if !named.Equal(lacking) {
		return fmt.Sprintf("what is known to be lost is %s, not %s", v.Loss(), accepted), nil
	}
	return "", nil
}

// Changed tells whether a later verdict is about something else than this one, which a
// person has seen: other nodes answer, or have something else.
func (v *Verdict) Changed(later Verdict) bool {
	return !slices.Equal(v.Objections, later.Objections) || v.Lacking != later.Lacking || !slices.Equal(v.Unknown, later.Unknown)
}

// Sayers returns the other nodes that say what they have.
func (v *Verdict) Sayers() (names []string) {
	for _, n := range v.Nodes {
		if n.Report != nil {
			names = append(names, n.Name)
		}
	}
	return names
}

// Overridable tells whether a person may override all objections.
func (v *Verdict) Overridable() bool {
	return !slices.ContainsFunc(v.Objections, func(o Objection) bool { return o.Final })
}

// Loss is Lacking, or None.
func (v *Verdict) Loss() string {
	if v.LackingCount == 0 {
		return None
	}
	return v.Lacking
}

// Record says what the recovered node lacks, for the audit log.
func (v *Verdict) Record() string {
	unknown := "what only " + strings.Join(v.Unknown, ", ") + " had, which is not known"
	switch {
	case len(v.Unknown) == 0:
		return v.Loss()
	case v.LackingCount == 0:
		return unknown
	}
	return v.Lacking + ", and " + unknown
}

// VoterNames returns the names of the members of a state that have these ids.
func VoterNames(s cluster.State, ids []cluster.NodeID) (names []string) {
	for _, m := range s.Members {
		if slices.Contains(ids, m.ID) {
			names = append(names, m.Name)
		}
	}
	return names
}
