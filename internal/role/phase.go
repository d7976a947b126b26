package role

// phase is where a node stands: a struct for each phase, or for a family of phases whose
// rules are the same, with the state that is valid in it alone.
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
	// next begins what comes next: no operation and no pause is in the way.
	next(n *Machine)
	// stop is next for an agent that stops; an operation may be under way.
	stop(n *Machine)
	// leave takes back what the phase has set up, but for its operation: it ends before
	// its time, and why is for the operator who waits for it.
	leave(n *Machine, why string)
}

// plain is a phase without rules of its own: each phase adds those that it has.
type plain struct{}

func (plain) done(*Machine, Done)        {}
func (plain) failed(n *Machine, in Done) { n.fence(in.Reason) }
func (plain) check(*Machine)             {}
func (plain) next(*Machine)              {}
func (plain) stop(*Machine)              {}
func (plain) leave(*Machine, string)     {}
