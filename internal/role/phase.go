package role

// phase is where a node stands. There is a struct for each phase, or for a family of phases with the same
// rules. The struct has the state that is valid in that phase alone.
//
//	absent, starting, ending    process.go
//	following                   following.go
//	promotion, opening          promotion.go
//	primary, settling           primary.go
//	closing, awaiting,
//	reopening, closed           closing.go
type phase interface {
	name() Phase
	// done and failed take the outcome of the operation that the phase has begun.
	done(n *Machine, in Done)
	failed(n *Machine, in Done)
	// check ends the phase if it must not go on.
	check(n *Machine)
	// next begins the next step. It is called when no operation is under way and no pause is to be kept.
	next(n *Machine)
	// stop replaces next while the agent stops. An operation may be under way then.
	stop(n *Machine)
	// leave undoes what the phase has set up, but for its operation, because the phase ends early. why is for
	// the operator who waits for the phase.
	leave(n *Machine, why string)
}

// plain is a phase without rules of its own. Each phase overrides the methods for which it has a rule.
type plain struct{}

func (plain) done(*Machine, Done)        {}
func (plain) failed(n *Machine, in Done) { n.fence(in.Reason) }
func (plain) check(*Machine)             {}
func (plain) next(*Machine)              {}
func (plain) stop(*Machine)              {}
func (plain) leave(*Machine, string)     {}
