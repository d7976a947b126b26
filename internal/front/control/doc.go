// Package control has the form in which an operator's request goes to an agent, and from there
// to the leader's agent: requests, answers, and the frames of both between agents. The agent
// decides which requests there are and who carries them out.
//
//	quorate node set …  ──control socket──►  agent  ──peer port──►  leader's agent
//	                    ◄──────Answer──────         ◄──────────────
//
// Between agents there is one request and one answer on a connection of their own (transport's
// class call), each a frame with JSON (package frame, "QC").
//
// Type 1 is a Request, 2 an Answer. Unknown fields in their JSON are skipped, so that agents of
// two versions understand each other. An agent refuses a request whose name it does not know.
//
// The package has no state, and starts no goroutine. The caller bounds the time.
package control
