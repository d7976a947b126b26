package status

import (
	"cmp"
	"fmt"

	"github.com/quorate/quorate/internal/cluster"
)

// Refusal says why two agents that answer each other do not connect.
type Refusal struct {
	// By is the name of the node that refuses, Of the name of the other node. Both are empty if another node
	// answers at the address of the wanted node.
	By  string `json:"by"`
	Of  string `json:"of"`
	Why string `json:"why"`
	// Key is the key that Of shows, if By knows that node by another key; "" = the reason is not a key.
	Key cluster.Key `json:"key,omitempty"`
	// Data: By knows Of with another data directory.
	Data bool `json:"data,omitempty"`
}

// Stranger is a node that dials another one, which does not know it.
type Stranger struct {
	Name string `json:"name"`
	// From is the address from which it came.
	From string `json:"from"`
}

// stranded says in lines that the node that was asked may know none of the members, and what to do; nil: nothing says
// that it does.
func (s Cluster) stranded() []string {
	var from []string
	for _, n := range s.Own().Strangers {
		from = append(from, fmt.Sprintf("%s (from %s)", n.Name, n.From))
	}
	if len(from) == 0 {
		return nil
	}
	return []string{
		fmt.Sprintf("Nodes of this cluster that node %s does not know dial it: %s. The members were changed while it was away, so the cluster may run without it.", s.Self, list(from, "and")),
		`Look at "quorate status" there first. If the cluster runs, do not recover this node: docs/runbook.md, "A node knows none of the members".`,
	}
}

// why is the reason, which an agent with an empty data directory does not tell everybody.
func (r Refusal) why() string { return cmp.Or(r.Why, "it does not say why") }

// Sentence returns the refusal as a sentence, as it is shown of the node with a name. If that node is refused, the
// key is what some process at its address has shown. That may be a stranger's, so no command has this key in it.
func (r Refusal) Sentence(name string) string {
	if r.By == "" {
		return "another node is at its address: " + r.why()
	}
	text := fmt.Sprintf("it runs, and %s refuses %s: %s", r.By, r.Of, r.why())
	if r.Key != "" {
		text += ". " + r.rekey(r.Of == name)
	}
	if r.Data && r.Of == name {
		text += fmt.Sprintf(". If node %s was rebuilt while node %s was away, and serves: \"quorate node rebuild %s\" there takes node %s in again", r.Of, r.By, r.By, r.By)
	}
	return text
}

// rekey says what to do about a key. seen: it is what some process at the address of Of has shown.
func (r Refusal) rekey(seen bool) string {
	if seen {
		return fmt.Sprintf("Put the right node.key back on %s, or, if \"quorate key show\" on its host prints %s, run \"quorate node set %s --key KEY\" with that key on the host of the node that leads",
			r.Of, r.Key, r.Of)
	}
	return fmt.Sprintf("Put the right node.key back on %s, or, if its key is right, run \"quorate node set %s --key %s\" on the host of the node that leads",
		r.Of, r.Of, r.Key)
}

// away says, for a status, why a node does not count as running; zero = it is not known whether it runs.
func (r *Refusal) away(name string) predicate {
	switch {
	case r == nil, r.By == "":
		return predicate{}
	case r.By == name:
		return predicate{refuses, r.Of}
	}
	return predicate{is, "refused by " + r.By}
}

// Refusers returns the nodes that refuse the node that was asked, and the refusal of the first of them. A refusal that
// names a key comes first: whatever the others say, the key has to be right.
func (s Cluster) Refusers() (names []string, first Refusal) {
	for _, n := range s.Nodes {
		if n.Refusal != nil && n.Refusal.By == n.Name {
			names = append(names, n.Name)
			if len(names) == 1 || first.Key == "" && n.Refusal.Key != "" {
				first = *n.Refusal
			}
		}
	}
	return names, first
}

// Refused says in lines that others refuse the node that was asked, or cannot reach it, and what to do; nil: no
// node does.
func (s Cluster) Refused() []string {
	for _, n := range s.Nodes {
		if n.Name == s.Self && n.Unreached != "" {
			return []string{n.Unreached, "There may be a primary: look at `quorate status` on another node."}
		}
	}
	names, first := s.Refusers()
	if len(names) == 0 {
		return nil
	}
	verbs := "run, and refuse"
	if len(names) == 1 {
		verbs = "runs, and refuses"
	}
	remedy := ""
	switch {
	case first.Key != "":
		remedy = " " + first.rekey(false) + "."
	case first.Data: // nothing else is mended by giving up data
		remedy = fmt.Sprintf(" If node %s has the wrong data_dir, give it the right one; else \"quorate node rebuild %s\" there rebuilds it.", s.Self, s.Self)
	}
	return []string{
		fmt.Sprintf("%s %s this node: %s", list(names, "and"), verbs, first.why()),
		fmt.Sprintf("Look at `quorate status` on %s: there may be a primary.%s", list(names, "or"), remedy),
	}
}
