package role

import "fmt"

// steady tells whether the newest mysqld ran, or took to end, for so long that its end
// is not one in a row.
func (n *Node) steady() bool { return n.now-n.startedAt >= n.cfg.SteadyAfter }

// crashed counts the ends of a mysqld that started well and was not told to end, or was
// killed for a doubt about it (it does not answer, say). The first is followed by a start at once. If the next one ends soon, too, it will do so
// again (a failing disk, a bug), and each start costs a recovery: so there is a
// pause, twice as long each time.
func (n *Node) crashed() {
	if n.steady() {
		n.crashes = 0
	}
	n.crashes++
	if n.crashes == 1 {
		return
	}
	pause := min(n.cfg.RetryAfter<<min(n.crashes-2, crashDoublingsMax), n.cfg.FencedAfter)
	n.retryAt = n.now + pause
	n.reason = fmt.Sprintf("%s; %d times in a row within %s of its start: it is started again after %s",
		n.reason, n.crashes, n.cfg.SteadyAfter, pause)
}

// crashDoublingsMax keeps the pause from overflowing; FencedAfter is far shorter.
const crashDoublingsMax = 16
