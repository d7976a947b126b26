package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
)

// Level says how urgent a sentence or a node's state is.
type Level string

// The levels.
const (
	LevelOK Level = "ok"
	// LevelNotice: something is under way, or is to be mended, or the next failure would stop writes.
	LevelNotice Level = "notice"
	// LevelAlarm: somebody has to look now.
	LevelAlarm Level = "alarm"
)

// Sentence is a line for people.
type Sentence struct {
	Level Level `json:"level"`
	// Topic is the subject in one word.
	Topic string `json:"topic"`
	Text  string `json:"text"`
}

// The topics of a summary.
const (
	topicTwoSides     = "two sides"    // a majority and a recovered cluster may both take writes
	topicPrimary      = "primary"      // which node it is, or that there is none
	topicOutside      = "outside"      // this node takes no part in the cluster, or is refused
	topicSurvives     = "survives"     // how many failures are survived
	topicMissing      = "missing"      // what is needed to have a primary again
	topicFailover     = "failover"     // how long a failover would take
	topicMaintenance  = "maintenance"  // maintenance is on
	topicSite         = "site"         // the site from which this one has taken over is not closed
	topicFollow       = "follow"       // the cluster follows another server
	topicRecovered    = "recovered"    // members are missing after a recovery
	topicAcks         = "acks"         // what OKs wait for
	topicSettings     = "settings"     // settings that are not the default
	topicCertificates = "certificates" // the certificates of the mysqlds
	topicTimeZones    = "time zones"   // the time zones of the hosts
	topicTableNames   = "table names"  // lower_case_table_names of the mysqlds
	topicPeers        = "peers"        // connections between agents
)

// CommitsWait begins StageBlocked where all commits wait for that stage.
const CommitsWait = "commits wait for "

// acksWaitShown is for how many seconds ACKs must wait for a node before that is mentioned: there is always
// some entry on its way.
const acksWaitShown = 1

// Own returns the status of the node that was asked. If it is not there, it returns a Node that is neither
// primary nor replica.
func (c Cluster) Own() Node {
	for _, n := range c.Nodes {
		if n.Name == c.Self {
			return n
		}
	}
	return Node{Name: c.Self}
}

// InWords returns the cluster with what follows from it in words, as an answer for people and programs.
func (c Cluster) InWords() Cluster {
	c.Summary = c.Sentences()
	c.Nodes = slices.Clone(c.Nodes)
	for i, n := range c.Nodes {
		c.Nodes[i].Level, c.Nodes[i].About = n.Urgency(), c.AboutNode(n)
		c.Nodes[i].LagUnknown = n.LagUnknown || !n.Reachable
		if shown := n.Shown(); n.Name != c.Self && shown != n.Role {
			c.Nodes[i].Role, c.Nodes[i].RoleLast = shown, n.Role
		}
	}
	return c
}

// Sentences says how the cluster is, the most important first: which node is the primary and what failures are
// survived, or what is needed to have a primary again.
func (c Cluster) Sentences() []Sentence {
	apart := c.twoSides()
	said := append(apart, c.primarySentences()...)
	add := func(level Level, topic, text string) {
		if text != "" {
			said = append(said, Sentence{level, topic, units.Line(text)})
		}
	}
	if c.Maintenance != nil {
		add(LevelNotice, topicMaintenance, "MAINTENANCE "+c.Maintenance.String())
	}
	if f := c.Follow; f != nil && f.Token != "" {
		add(LevelAlarm, topicSite, fmt.Sprintf("CLOSED for site %s since %s: nobody writes here until that site takes over or gives up; if it does neither, run quorate site switch at the site that should take writes", f.Site, f.Since.UTC().Format(time.DateTime)))
	} else {
		add(LevelNotice, topicFollow, c.follows())
	}
	if c.Closing != nil && c.Follow != nil && c.Closing.CalledOff && c.Closing.Left != "" {
		add(LevelAlarm, topicFollow, fmt.Sprintf("CUTOVER of %s was called off, and %s IS LEFT CLOSED, so nobody writes: %s; open it there, or go on (quorate cutover --source-closed)", units.Time(c.Closing.Since), c.Follow.Source, c.Closing.Left))
	} else if c.Closing != nil && c.Follow != nil && c.Closing.CalledOff {
		add(LevelAlarm, topicFollow, fmt.Sprintf("CUTOVER of %s was called off, and %s MAY BE CLOSED, so nobody writes: the primary opens it again as soon as it can (quorate follow)", units.Time(c.Closing.Since), c.Follow.Source))
	} else if c.Closing != nil && c.Follow != nil {
		add(LevelNotice, topicFollow, fmt.Sprintf("CUTOVER since %s: %s is closed, and nobody writes until the cutover is done or called off: do not open it by hand before", units.Time(c.Closing.Since), c.Follow.Source))
	}
	if c.Site != nil && c.Site.Fence {
		add(LevelAlarm, topicSite, fmt.Sprintf("SITE %s was not closed when this site was promoted: it may take writes, until it answers and is closed", c.Site.Site))
	}
	if r := c.Recovered; r != nil {
		var names []string
		for _, m := range r.Without {
			names = append(names, m.Name)
		}
		back := ": quorate node rebuild brings these back"
		if apart != nil { // it would delete what the other side has acknowledged
			back = ""
		}
		add(LevelNotice, topicRecovered, fmt.Sprintf("RECOVERED on %s at %s without %s%s", r.Node, units.Time(r.At), strings.Join(names, ", "), back))
	}
	said = append(said, c.ackSentences()...)
	add(LevelOK, topicSettings, c.settings())
	if text := c.Certificates(); text != "" {
		add(LevelNotice, topicCertificates, "certificates: "+text)
	}
	if text := c.TimeZones(); text != "" {
		add(LevelNotice, topicTimeZones, "time zones: "+text+"; "+TimeZonesRemedy)
	}
	if text := c.TableNames(); text != "" {
		add(LevelNotice, topicTableNames, text+"; "+TableNamesRemedy)
	}
	add(LevelNotice, topicPeers, c.plain())
	return said
}

// twoSides says that a majority and a node that was recovered without it may both take writes; nil = nobody says so.
func (c Cluster) twoSides() []Sentence {
	var by []string
	for _, n := range c.Nodes {
		if n.Reachable && n.TwoSides {
			by = append(by, n.Name)
		}
	}
	if by == nil {
		return nil
	}
	return []Sentence{{LevelAlarm, topicTwoSides, fmt.Sprintf("TWO SIDES MAY TAKE WRITES: the cluster was recovered although its majority may run; the line of node %s says which agent to stop now", list(by, "or of node"))}}
}

// primarySentences says which node is the primary.
func (c Cluster) primarySentences() (said []Sentence) {
	own := c.Own()
	outside, refused := own.OutsideText(), c.Refused()
	switch {
	case c.Primary == "" && outside != "":
		return []Sentence{{own.Urgency(), topicOutside, fmt.Sprintf("cluster %s, node %s: %s", c.Cluster, c.Self, outside)}}
	case c.Primary == "" && refused != nil:
		said = []Sentence{{LevelAlarm, topicOutside, fmt.Sprintf("cluster %s, node %s: %s", c.Cluster, c.Self, units.Line(refused[0]))}}
		for _, more := range append(c.stranded(), refused[1:]...) {
			said = append(said, Sentence{LevelOK, topicOutside, more})
		}
		return said
	case c.Primary == "":
		since := ""
		if !c.NoPrimarySince.IsZero() {
			ago := time.Duration(c.NoPrimarySeconds * float64(time.Second)).Round(time.Second)
			since = fmt.Sprintf(" since %s UTC (%v)", c.NoPrimarySince.UTC().Format(time.DateTime), ago)
		}
		said = []Sentence{{LevelAlarm, topicPrimary, fmt.Sprintf("cluster %s, NO PRIMARY%s, as node %s sees it", c.Cluster, since, c.Self)}}
		for _, line := range c.stranded() {
			said = append(said, Sentence{LevelAlarm, topicOutside, line})
		}
		if c.Quorum != nil {
			for _, line := range c.Quorum.NoPrimary(c.Self) {
				said = append(said, Sentence{LevelOK, topicMissing, line})
			}
		}
		return said
	}
	said = []Sentence{{LevelOK, topicPrimary, fmt.Sprintf("cluster %s, primary %s, as node %s sees it", c.Cluster, c.Primary, c.Self)}}
	if outside != "" {
		said = append(said, Sentence{LevelNotice, topicOutside, outside})
	}
	if c.Quorum != nil {
		said = append(said, Sentence{c.Quorum.level(), topicSurvives, c.Quorum.String()})
	}
	if c.Failover != nil {
		said = append(said, Sentence{LevelOK, topicFailover, c.Failover.String()})
	}
	return said
}

func (q Quorum) level() Level {
	switch {
	case q.Survives < 0:
		return LevelAlarm
	case q.Survives == 0:
		return LevelNotice
	}
	return LevelOK
}

// ackSentences says what ACKs wait for beside a commit, and for which members they do not wait although they
// should.
func (c Cluster) ackSentences() (said []Sentence) {
	var required []string
	for _, n := range c.Nodes {
		if n.RequireAck != "" {
			required = append(required, fmt.Sprintf("%s (%s)", n.Name, n.RequireAck))
		}
	}
	if c.Durability != "" && c.Durability != cluster.DurabilityMajority || len(required) > 0 {
		text := "durability " + string(c.Durability)
		if len(required) > 0 {
			text += ", require-ack of " + strings.Join(required, ", ")
		}
		said = append(said, Sentence{LevelOK, topicAcks, text})
	}
	for _, n := range c.Nodes {
		if !n.Reachable {
			continue
		}
		if stage, ok := strings.CutPrefix(n.StageBlocked, CommitsWait); ok && n.Name == c.Primary {
			said = append(said, Sentence{LevelAlarm, topicAcks, "WRITES WAIT for a large transaction: " + stage})
		}
		for _, w := range n.AcksWait {
			if w.Seconds >= acksWaitShown {
				said = append(said, Sentence{LevelAlarm, topicAcks, fmt.Sprintf("WRITES WAIT for %s: it lacks %s, for %.1f s%s", w.Node, w.Lacks(), w.Seconds, c.waitNoMore(w.Node))})
			}
		}
		for _, w := range n.AcksDropped {
			said = append(said, Sentence{LevelAlarm, topicAcks, fmt.Sprintf("REQUIRE-ACK DROPPED: writes do not wait for %s, which lacks %s, for %.1f s", w.Node, w.Lacks(), w.Seconds)})
		}
	}
	return said
}

// waitNoMore names the command after which no OK waits for a node; "" = there is none.
func (c Cluster) waitNoMore(node string) string {
	required := slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.Name == node && n.RequireAck != "" })
	var commands []string
	if required {
		commands = append(commands, "`quorate node set "+node+" --require-ack=false`")
	}
	if c.Durability != "" && c.Durability != cluster.DurabilityMajority {
		commands = append(commands, "`quorate cluster set --durability "+string(cluster.DurabilityMajority)+"`")
	}
	if len(commands) == 0 {
		return ""
	}
	return ". Bring it back; or, if an OK may mean less: " + list(commands, "and")
}

// follows says which server the cluster follows, and how far the primary is; "" = the cluster follows none.
func (c Cluster) follows() string {
	if c.Follow == nil {
		return ""
	}
	text := fmt.Sprintf("FOLLOWS %s, so clients cannot write until quorate cutover", c.Follow.Source)
	if c.Follow.Site != "" {
		text = fmt.Sprintf("FOLLOWS site %s, so clients cannot write until quorate site switch", c.Follow.Site)
	}
	for _, n := range c.Nodes {
		if n.Name == c.Primary && n.Follow != "" {
			text += fmt.Sprintf("; %s %s", n.Name, n.Follow)
		}
	}
	return text
}

// settings says which of the cluster's settings differ from the default; "" = none.
func (c Cluster) settings() string {
	var said []string
	if c.Reseed == cluster.ReseedManual {
		said = append(said, "reseed manual")
	}
	if c.Errant == cluster.ErrantRebuild {
		said = append(said, "errant rebuild")
	}
	if c.RetainBytesMax > 0 {
		said = append(said, "retain-max "+units.Size(c.RetainBytesMax))
	}
	if c.MySQLRouter {
		said = append(said, "router on")
	}
	if c.EventsOff {
		said = append(said, "events off")
	}
	return strings.Join(said, ", ")
}

// plain says that connections between agents are not protected, or not all of them; "" = all are.
func (c Cluster) plain() string {
	const knowsKeys = 3 // the first state format with keys
	switch n := c.Own(); {
	case n.StateFormat < knowsKeys || n.Role.Outside() != "" || c.PeerSecurity == cluster.PeersRequire:
		return ""
	case c.PeerSecurity == cluster.PeersBoth:
		return "connections between agents have TLS where both sides can: quorate cluster set --peer-security require"
	}
	return "connections between agents are not protected: quorate cluster set --peer-security both"
}

// Urgency says how urgent it is to look at the node.
func (n Node) Urgency() Level {
	switch {
	case !n.Reachable, n.Role == RoleFenced, n.Role == RoleErrant, n.LogState != "" && n.LogState != LogOK, n.StageBlocked != "", n.standsStill(), n.TwoSides:
		return LevelAlarm
	case n.Reason != "" && !n.Advice:
		return LevelNotice // something ails it
	case n.Role == RolePrimary, n.Role == RoleReplica && !n.LagUnknown, n.Role == RoleLogger:
		return LevelOK
	}
	return LevelNotice // something is under way
}

// Shown returns the role that people and programs should see: a node that is not reachable may have another
// role by now than the one that was heard last.
func (n Node) Shown() Role {
	switch {
	case n.Reachable:
		return n.Role
	case n.Refusal != nil && n.Refusal.By != "":
		return RoleRefused
	case n.HeardAs() == "":
		return RoleUnknown
	}
	return RoleUnreachable
}

// HeardAs returns the role in which the node was heard last, also for an answer (InWords); "" = it was never
// heard.
func (n Node) HeardAs() Role {
	if n.Role == RoleUnreachable || n.Role == RoleRefused || n.Role == RoleUnknown {
		return n.RoleLast
	}
	return n.Role
}

// OutsideText says that a node takes no part in the cluster, and why; "" = it takes part.
func (n Node) OutsideText() string {
	text := n.Role.Outside()
	if text != "" && n.Reason != "" {
		text += ": " + units.Line(n.Reason)
	}
	return text
}

// AboutNode says in sentences what there is to say of a node beside its figures.
func (c Cluster) AboutNode(n Node) (said []string) {
	last := n.HeardAs()
	if !n.Reachable { // what was true only while it served, or waited for something
		n.PurgeBlocked, n.StageBlocked, n.Pace, n.Source, n.Events = "", "", "", "", 0
	}
	switch {
	case n.Name == c.Self && n.Role.Outside() != "":
		n.Reason = n.Unreached // the summary has the rest
	case n.Reachable && n.ReasonBeside != nil:
		n.Reason = *n.ReasonBeside
	case n.Reachable:
	case n.Unreached != "":
		n.Reason = n.Unreached
	case last == "" && c.Own().Role.Outside() != "":
		return nil // a node outside of the cluster hears no other node
	case n.Refusal != nil:
		n.Reason = n.Refusal.Sentence(n.Name)
	case last == "":
		n.Reason = "not heard since this agent started"
	default:
		age := time.Duration(n.AgeMs) * time.Millisecond
		n.Reason = fmt.Sprintf("last heard %v ago, as %s", age.Round(100*time.Millisecond), last)
		if last == RoleDemoting { // this includes a replica that was stopped in order
			n.Reason = fmt.Sprintf("last heard %v ago, as its mysqld was being stopped or closed", age.Round(100*time.Millisecond))
		}
	}
	for _, r := range []struct{ about, text string }{
		{"", n.Reason}, {"", n.leavingText()}, {"errant: ", n.Errant}, {"saved: ", n.ErrantSaved}, {"log " + string(n.LogState) + ": ", n.LogDetail}, {"purge: ", n.PurgeBlocked},
		{"stage: ", n.StageBlocked}, {"writes: ", n.Pace}, {"", c.fedBy(n)},
		{"events: ", n.eventsText()},
	} {
		if r.text != "" {
			said = append(said, units.Line(r.about+r.text))
		}
	}
	for _, o := range n.Old {
		said = append(said, fmt.Sprintf("its data from before the rebuild: %s in %s, kept until %s, or until the disk is nearly full; rm -r it if you do not need it",
			units.Size(o.Bytes), units.Line(o.Dir), o.Until.UTC().Format(time.DateOnly)))
	}
	return said
}

// leavingText says that the node has yet to obey the order to be rebuilt; "" = there is none.
func (n Node) leavingText() string {
	switch {
	case !n.Leaving:
		return ""
	case !n.Reachable && n.Refusal == nil:
		return "to be rebuilt: that begins once its agent runs"
	}
	return "to be rebuilt"
}

// fedBy says which node feeds a learner that has a source; "" = it has no source.
func (c Cluster) fedBy(n Node) string {
	leads := slices.ContainsFunc(c.Nodes, func(m Node) bool { return m.Name == n.Source && m.ID == n.Leader })
	switch {
	case n.Source == "":
		return ""
	case n.Source == n.FedBy || leads:
		return "fed by " + n.Source
	}
	return fmt.Sprintf("fed by the leader, not by its source %s", n.Source)
}

// eventsText says which events of a primary's mysqld do not run though they are not disabled; "" = there are
// none.
func (n Node) eventsText() string {
	if n.Events == 0 || n.HeardAs() != RolePrimary {
		return ""
	}
	text := fmt.Sprintf("%d not run: %s", n.Events, n.EventNames)
	if int64(strings.Count(n.EventNames, ", ")+1) < n.Events {
		text += ", …"
	}
	return text
}
