package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
)

// majorityOf says how many of the voters are a majority, and how many nodes may fail.
func majorityOf(q Quorum) string {
	fail := "writes cannot go on"
	if q.Survives >= 0 {
		fail = fmt.Sprintf("%d may fail", q.Survives)
	}
	return fmt.Sprintf("%d of %d, %s", q.Needed, len(q.Voters), fail)
}

// majorityNote says what the majority will be, what it was before, and what else limits the number of failures
// that are survived.
func majorityNote(is, was Quorum) string {
	note := fmt.Sprintf("a majority is %s (before: %s)", majorityOf(is), majorityOf(was))
	for _, why := range append(slices.Clone(is.Away), is.Limit) {
		if why != "" {
			note += "; " + why
		}
	}
	return note
}

// PlanChange says what it means if the state before becomes the state after.
func PlanChange(before, after cluster.State, nodes []Node, primary string) (p cluster.Impact) {
	was, is := Sight{State: before, Nodes: nodes}.Quorum(), Sight{State: after, Nodes: nodes}.Quorum()
	if !slices.Equal(was.Voters, is.Voters) {
		p.Notes = append(p.Notes, fmt.Sprintf("after that the voters are %s: %s", strings.Join(is.Voters, ", "), majorityNote(is, was)))
	}
	for i, m := range after.Members {
		if _, err := before.Member(m.Name); err != nil && m.Becomes != "" {
			p.Notes = append(p.Notes, fmt.Sprintf("once %s has caught up it votes: %s", m.Name, majorityNote(onceVoting(after, i, nodes), was)))
		}
		old, err := before.Member(m.Name)
		if err == nil && m.Instance != old.Instance && silent(m.ID, nodes) {
			p.Notes = append(p.Notes, fmt.Sprintf("%s is not heard of: it is rebuilt once its agent runs", m.Name))
		}
		if err == nil && m.Name == primary && m.Weight == 0 && old.Weight > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("%s stays the primary until it fails or is moved (quorate switchover); with weight 0 it does not become the primary again", m.Name))
		}
	}
	if was, is := takeOver(before, nodes, primary), takeOver(after, nodes, primary); primary != "" && !slices.Equal(was, is) {
		p.Notes = append(p.Notes, TakeOverNote(is))
	}
	if after.Maintenance != nil && before.Maintenance == nil {
		p.Notes = append(p.Notes, "if the primary fails, there is no primary until it is back or maintenance is off")
	}
	if len(p.Notes) == 0 && is.Survives >= 0 && is.Survives < was.Survives { // else a note above says why
		p.Notes = append(p.Notes, fmt.Sprintf("after that the cluster survives %s (before: %d): %s", units.Count(is.Survives, "failure", "failures"), was.Survives, is.Limit))
	}
	if n := after.Bytes(); n > cluster.StateBytesMax/2 {
		p.Notes = append(p.Notes, fmt.Sprintf("the cluster state has %d KiB, and at most %d are kept: the ids of removed nodes stay in it for ever; "+
			"a cluster that is made from a backup begins without them", n>>10, cluster.StateBytesMax>>10))
	}
	p.TooFew = tooFew(before, nodes, is)
	waited := map[string]bool{}
	for _, m := range acksWouldWait(before, nodes) {
		waited[m.Name] = true
	}
	for _, m := range acksWouldWait(after, nodes) {
		if !waited[m.Name] {
			p.Stops = append(p.Stops, fmt.Sprintf("OKs would wait for %s, which %s", m.Name, lacking(m, nodes)))
		}
	}
	return p
}

// tooFew says why a change must not take a vote now; "" = it takes none, or may. While a node copies its data, the node
// from which it copies must not lose its own, and an OK should mean more than one disk.
func tooFew(before cluster.State, nodes []Node, is Quorum) string {
	takes := func(m cluster.Member) bool { return m.Votes() && !slices.Contains(is.Voters, m.Name) }
	if len(is.Running) > 1 || !slices.ContainsFunc(before.Members, takes) {
		return ""
	}
	for _, m := range before.Members {
		if m.Votes() || m.Becomes == "" {
			continue
		}
		doing := "joins"
		if m.Rebuilding() {
			doing = "is being rebuilt"
		}
		left := "no running voter would be left"
		if len(is.Running) == 1 {
			left = fmt.Sprintf("only one running voter would be left (%s)", is.Running[0])
		}
		text := fmt.Sprintf("node %s %s, and %s: wait until \"quorate status\" shows node %s as %s", m.Name, doing, left, m.Name, m.Becomes)
		if silent(m.ID, nodes) {
			text += fmt.Sprintf("; it is not heard of: if it never comes, remove it first (quorate node remove %s)", m.Name)
		}
		return text
	}
	return ""
}

// silent tells whether a node says nothing: its agent does not run, as far as is known.
func silent(id cluster.NodeID, nodes []Node) bool {
	return !slices.ContainsFunc(nodes, func(n Node) bool { return n.ID == id && (n.Reachable || n.Refusal != nil) })
}

// onceVoting judges a state in which the i-th member, a joining learner, has caught up.
func onceVoting(s cluster.State, i int, nodes []Node) Quorum {
	s = s.Clone()
	m := s.Members[i].Promoted(s.Members[i].Becomes)
	s.Members[i] = m
	role := RoleReplica
	if m.Kind == cluster.KindLogger {
		role = RoleLogger
	}
	n := Node{ID: m.ID, Name: m.Name, Reachable: true, Role: role}
	for _, o := range nodes {
		n.ElectionTimeout = max(n.ElectionTimeout, o.ElectionTimeout) // it runs the same version as the others
	}
	others := slices.DeleteFunc(slices.Clone(nodes), func(o Node) bool { return o.ID == m.ID })
	return Sight{State: s, Nodes: append(others, n)}.Quorum()
}

// TakeOverNote says which nodes could take over from the primary.
func TakeOverNote(names []string) string {
	if len(names) == 0 {
		return "after that no other node could take over from the primary"
	}
	return fmt.Sprintf("after that %s could take over from the primary", strings.Join(names, ", "))
}

// RestartNotes says how the cluster is while a node's mysqld is restarted. primary is the node that is the
// primary after that: another node, or this one if it stays the primary; "" = the primary does not change.
func RestartNotes(s Sight, name, primary string) (notes []string) {
	// A switchover lets the other node open first.
	if m := s.State.Maintenance; m != nil && primary != "" {
		moved := *m
		moved.Primary = primary
		s.State.Maintenance = &moved
	}
	s.Nodes = slices.Clone(s.Nodes)
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			s.Nodes[i].Role = RoleStarting
		}
	}
	if name == primary {
		notes = append(notes, fmt.Sprintf("%s stays the leader: its sessions end, and writes wait until its mysqld is back", name))
	}
	q, meanwhile := s.Quorum(), "meanwhile "
	if q.Survives >= 0 {
		meanwhile += "the cluster "
	}
	return append(notes, meanwhile+q.String())
}

// WithoutNode says what it means if a node's mysqld goes down, at once even if it is the primary's.
func WithoutNode(s Sight, name string) (notes []string) {
	next := "another node takes over"
	if s.State.Maintenance != nil {
		next = "there is no primary until maintenance is off, or a switchover"
	}
	if name == s.Primary {
		notes = append(notes, fmt.Sprintf("the sessions of the primary, %s, end in doubt, and %s", name, next))
	}
	if s.State.Maintenance != nil {
		return append(notes, "no node takes over by itself while maintenance is on")
	}
	var names []string
	for _, n := range s.Nodes {
		if n.Name != name && n.Name != s.Primary && n.CanTakeOver() {
			names = append(names, n.Name)
		}
	}
	if s.Primary == "" {
		return []string{"there is no primary now: after that " + cmp.Or(strings.Join(names, ", "), "no other node") + " could become it"}
	}
	if len(names) == 0 && name == s.Primary {
		notes[0] = fmt.Sprintf("the sessions of the primary, %s, end in doubt", name)
	}
	return append(notes, TakeOverNote(names))
}

// takeOver returns the nodes that could take over from the primary if s were the state.
func takeOver(s cluster.State, nodes []Node, primary string) (names []string) {
	for _, n := range nodes {
		m, err := s.Member(n.Name)
		n.Kind, n.Weight = m.Kind, m.Weight
		if err == nil && n.Name != primary && n.CanTakeOver() {
			names = append(names, n.Name)
		}
	}
	return names
}

// acksWouldWait returns the members for which ACKs would wait under a state, longer than for any commit:
// members that are not there, or that lack much.
func acksWouldWait(s cluster.State, nodes []Node) []cluster.Member {
	on, dropped := map[cluster.NodeID]uint64{}, map[cluster.NodeID]bool{}
	for _, m := range s.Members {
		dropped[m.ID] = true // they would be dropped in time, if they have a drop-after
		if lacking(m, nodes) == "" {
			on[m.ID] = 1
		}
	}
	return s.AckWaitsFor(1, on, dropped)
}

// lacking says why a member does not have what is committed; "" = it has it, or will have it in a moment.
func lacking(m cluster.Member, nodes []Node) string {
	committed := uint64(0)
	for _, n := range nodes {
		committed = max(committed, n.LogCommit)
	}
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.ID == m.ID })
	switch {
	case m.Rebuilding() && i >= 0 && nodes[i].Instance != m.Instance:
		return "gets a new copy of its data"
	case i < 0 || !nodes[i].Reachable:
		return "is not heard of"
	case nodes[i].LogState != "" && nodes[i].LogState != LogOK:
		return "has a log that is " + string(nodes[i].LogState)
	case nodes[i].LogLast+logNearEntries < committed:
		return fmt.Sprintf("lacks %d entries", committed-nodes[i].LogLast)
	}
	return ""
}
