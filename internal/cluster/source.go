package cluster

import "fmt"

// A learner's source is the node that feeds it in place of the leader.

// checkSource refuses a source that a member cannot have.
func (s *State) checkSource(c NodeChange, m Member) error {
	source := m.Source
	set(&source, c.Source)
	required := m.RequireAck
	set(&required, c.RequireAck)
	switch {
	case source == "":
		if c.SourceApplied != nil && *c.SourceApplied {
			return fmt.Errorf("node %s has no source: source-applied has no effect without a source", m.Name)
		}
		return nil
	case c.Source == nil && c.RequireAck == nil:
		return nil // it was checked when it was set
	case required:
		return fmt.Errorf("ACKs wait for node %s: the leader has to feed it, require-ack and a source do not go together", m.Name)
	}
	return s.maySource(m.Name, source, m.Kind)
}

// maySource refuses a source that a node of this kind cannot have.
func (s *State) maySource(name, source string, kind Kind) error {
	from, err := s.Member(source)
	switch {
	case err != nil:
		return err
	case kind != KindLearner:
		what := map[Kind]string{KindFull: "full node", KindLogger: "logger"}[kind]
		return fmt.Errorf("node %s is a %s: only a learner has a source, a node with a vote is fed by the leader", name, what)
	case source == name:
		return fmt.Errorf("node %s cannot be its own source", name)
	case !from.Votes():
		return fmt.Errorf("node %s is a learner: a source is a node with a vote", source)
	}
	return nil
}

// dropSource removes a node as a source: the leader feeds the learners that it fed.
func (s *State) dropSource(name string) {
	for i := range s.Members {
		if s.Members[i].Source == name {
			s.Members[i].Source, s.Members[i].SourceApplied = "", false
		}
	}
}

// SourceOf returns the member that has to feed m; false = the leader has to: m has no source, or its source has
// no vote at the moment because it is rebuilt.
func (s State) SourceOf(m Member) (Member, bool) {
	if m.Source == "" || m.Votes() {
		return Member{}, false
	}
	from, err := s.Member(m.Source)
	return from, err == nil && from.Votes()
}
