// Package routing decides what MySQL Router is told of the cluster: which members there are, which one is the
// primary, and which replicas take readers. The agent of a primary looks (Keeper.Look), and what has to change is
// written by package mysql/routermeta.
//
// It is pure: a Keeper is told the time, and does nothing but decide.
//
// # What Router is told
//
//   - A member is a node with a vote and a mysqld that Router can reach. Loggers, learners and nodes that are
//     rebuilt are left out.
//   - The primary is the node that decides. It decides only while it serves.
//   - A replica is hidden once it has been unfit for hideAfter: it is not heard of, has no leader, is no replica,
//     does not apply, or lags more than lagMax. It is shown again once it has been fit for showAfter.
//   - The former primary is shown at once only if it is fit at the promotion.
//
// # Bounds
//
// The first write of an epoch waits until the former primary, if it is heard, lets clients in again, for formerMax at
// most: else Router's threads may stop (docs/router.md). From then on there is at most one write in writeEvery. A write
// that fails is tried again after retryAfter. What others did to the rows is noticed within lookEvery, and put right
// under the same bound.
package routing
