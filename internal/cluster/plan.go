package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Ask says how a change is asked for.
type Ask struct {
	// DryRun: it is only said what it would do.
	DryRun bool `json:"dry_run,omitempty"`
	// Force: also if writes stop by it.
	Force bool `json:"force,omitempty"`
}

// Plan says what a change means, as far as that can be known of the nodes now.
type Plan struct {
	// Notes are sentences: what changes by it.
	Notes []string `json:"notes,omitempty"`
	// Stops are sentences: why writes would stop at once.
	Stops []string `json:"stops,omitempty"`
}

// PlanChange says what it means that before becomes after.
func PlanChange(before, after State, nodes []NodeStatus, primary string) (p Plan) {
	voters := func(s State) (names []string) {
		for _, m := range s.Members {
			if m.Votes() {
				names = append(names, m.Name)
			}
		}
		return names
	}
	if was, is := voters(before), voters(after); !slices.Equal(was, is) {
		p.Notes = append(p.Notes, fmt.Sprintf("%s vote then: a majority is %d of %d, %d may fail (now %d of %d, %d may fail)", strings.Join(is, ", "),
			len(is)/2+1, len(is), (len(is)-1)/2, len(was)/2+1, len(was), (len(was)-1)/2))
	}
	if was, is := takeOver(before, nodes, primary), takeOver(after, nodes, primary); primary != "" && !slices.Equal(was, is) {
		p.Notes = append(p.Notes, TakeOverNote(is))
	}
	if after.Maintenance != nil && before.Maintenance == nil {
		p.Notes = append(p.Notes, "if the primary fails there is none until it is back, or maintenance is off")
	}
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

// TakeOverNote says who could take over from the primary.
func TakeOverNote(names []string) string {
	if len(names) == 0 {
		return "no other node could take over from the primary then"
	}
	return fmt.Sprintf("%s could take over from the primary then", strings.Join(names, ", "))
}

// WithoutNode says what it means that a node's mysqld goes down: of the primary at once.
func WithoutNode(st Status, name string) (notes []string) {
	next := "another node takes over"
	if st.Maintenance != nil {
		next = "there is no primary until maintenance is off, or a switchover"
	}
	if name == st.Primary {
		notes = append(notes, fmt.Sprintf("%s is the primary: its sessions end, in doubt, and %s", name, next))
	}
	if st.Maintenance != nil {
		return append(notes, "no node takes over by itself while maintenance is on")
	}
	var names []string
	for _, n := range st.Nodes {
		if n.Name != name && n.Name != st.Primary && n.CanTakeOver() {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 && name == st.Primary {
		notes[0] = fmt.Sprintf("%s is the primary: its sessions end, in doubt", name)
	}
	return append(notes, TakeOverNote(names))
}

// takeOver returns who could take over from the primary, were s the state.
func takeOver(s State, nodes []NodeStatus, primary string) (names []string) {
	for _, n := range nodes {
		m, err := s.Member(n.Name)
		n.Kind, n.Weight = m.Kind, m.Weight
		if err == nil && n.Name != primary && n.CanTakeOver() {
			names = append(names, n.Name)
		}
	}
	return names
}

// acksWouldWait returns whom ACKs would wait for under a state, longer than for any
// commit: a node that is not there, or that lacks much.
func acksWouldWait(s State, nodes []NodeStatus) []Member {
	on, dropped := map[NodeID]uint64{}, map[NodeID]bool{}
	for _, m := range s.Members {
		dropped[m.ID] = true // in time, where it has a drop-after
		if lacking(m, nodes) == "" {
			on[m.ID] = 1
		}
	}
	return s.ackWaitsFor(1, on, dropped)
}

// lacking says why a member does not have what is committed; "" = it does, or will
// in a moment.
func lacking(m Member, nodes []NodeStatus) string {
	committed := uint64(0)
	for _, n := range nodes {
		committed = max(committed, n.LogCommit)
	}
	i := slices.IndexFunc(nodes, func(n NodeStatus) bool { return n.ID == m.ID })
	switch {
	case m.Rebuilding() && i >= 0 && nodes[i].Instance != m.Instance:
		return "has its data made anew"
	case i < 0 || !nodes[i].Reachable:
		return "is not heard of"
	case nodes[i].LogState != "" && nodes[i].LogState != LogOK:
		return "has a log that is " + string(nodes[i].LogState)
	case nodes[i].LogLast+logNearEntries < committed:
		return fmt.Sprintf("lacks %d entries", committed-nodes[i].LogLast)
	}
	return ""
}
