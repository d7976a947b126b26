// Package control is how an operator's request gets to an agent, and from there to
// the leader's: what is asked, what is answered, and the frames of both between
// agents. What the requests are, and who does what, is the agent's.
//
//	quorate node set …  ──control socket──►  agent  ──peer port──►  leader's agent
//	                    ◄──────Answer──────         ◄──────────────
//
// Between agents it is one request and one answer on a connection of their own
// (transport's class call), each a frame with JSON (package frame, "QC").
//
// Type 1 is a Request, 2 an Answer. Unknown fields of their JSON are skipped, so
// that agents of two versions understand each other; an agent refuses by name what
// it does not know.
//
// The package has no state, and starts no goroutine. Who uses it bounds the time.
package control
