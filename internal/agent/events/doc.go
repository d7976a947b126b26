// Package events decides which events of the server's scheduler run on a primary.
//
// A server that replicates an event stores it as an event that runs elsewhere, whether it was enabled or
// disabled before. So the primary keeps a table of what each event is to be (mysqld.EventsSchema),
// which is replicated with the rest, and the next primary gives its events that status before it
// starts its scheduler. Elsewhere the scheduler is off.
//
// # What is promised
//
//   - An event runs on the primary alone.
//   - No run is made twice. A recurring event goes on with the next time of its schedule; a run that
//     was due, or under way, at a failover is lost. An event that runs once and was due before the
//     promotion is not run: perhaps it was.
//   - If an event cannot be given its status, the others still run. But if that event would run, none runs.
//   - An event that an operator has disabled stays disabled. The table is written a moment after the
//     statement. An event whose last change is not in the table is not run, and named: Doubt.
//
// The definer of an event, its schedule, and the time of its last change stay as they are.
//
// Decide is pure. The agent of the primary looks once a second, and does what Decide says, in its
// order. Nothing here owns anything, starts a goroutine, or is durable.
package events
