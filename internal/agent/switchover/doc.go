// Package switchover moves the primary to another node in order, and starts a mysqld again in order.
//
//	request ──► plan ──► what blocks it? ──► the target catches up ──► role machine: writes closed, handed over
//	                      (nothing is touched until here)              (primary.Orders has the plan under way)
//
// What is judged here is what an operator is told before anything is done: to which node the primary would go, what is
// in the way, how long it may take. A dry run ends there. From then on the role machine has the plan (role.Move,
// role.Restart). If its time is over, the role machine calls it off, and opens writes again. A restart of a primary's
// mysqld is a switchover first, unless it is asked for in place.
//
// A Service owns nothing and keeps nothing. Its handlers are called from any goroutine; primary.Orders lets one plan
// run at a time.
package switchover
