// Package clock is how the agent's straight-line code waits: for a time, for something that
// changes, and for the end of its context, whichever comes first. Code that waits only in this way
// runs unchanged in the simulator, on virtual time and without a goroutine. In the agent it runs on
// the machine's clock.
//
// After each wait the code checks its condition again, so waking too often is harmless. Such code must not
// receive from a channel, take time from package time, or start a goroutine except by Tasks.Go: the
// simulator would wait for ever, or two runs of one seed would differ. So it uses no context.AfterFunc, and
// holds no lock while it waits.
//
// The package owns no state. Only Machine.Go starts a goroutine. A OneTimer belongs to one
// goroutine.
package clock
