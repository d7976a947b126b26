// Package clock is how the agent's straight-line code waits: for a time, for something that
// changes, and for the end of its context, whichever comes first. Code that waits only so
// runs in the simulator as it is, on virtual time and without a goroutine; in the agent on
// the machine's clock.
//
// The code that waits looks again after it: to be woken too often is harmless. Such code must not
// receive from a channel, take time from package time, or start a goroutine but by Tasks.Go: the
// simulator would wait for ever, or not be the same run twice. So it has no context.AfterFunc, and
// holds no lock while it waits.
//
// The package owns no state. Machine starts a goroutine in Go alone. A OneTimer belongs to one
// goroutine.
package clock
