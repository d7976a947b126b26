package sim

import (
	"hash/fnv"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Where some transactions take long to apply, one of longApplyEvery does. It takes longApplyMin, and up to
// longApplySpread more. A promotion without progress ends after longPromotionTimeout, which is shorter than
// most of these transactions.
const (
	longApplyEvery       = 250
	longApplyMin         = time.Second
	longApplySpread      = 5 * time.Second
	longPromotionTimeout = 2 * time.Second
	// applyWorkStep is how often work inside a transaction shows as progress.
	applyWorkStep = 100 * time.Millisecond
)

// applying is the transaction that an applier has begun and not finished.
type applying struct {
	gtid  gtid.GTID
	began time.Duration
}

// assignLongApplies lets some transactions take long to apply, in one of four worlds. It does not do so where
// everything depends on the speed of the nodes.
func (w *World) assignLongApplies() {
	long := chance(w.random(streamLongApplies), 25)
	w.longApplies = long && !w.options.Blips && w.options.Members < MembersPair
}

func (w *World) promotionTimeout() time.Duration {
	if w.longApplies {
		return longPromotionTimeout
	}
	return promotionTimeout
}

// appliesFor returns how long a transaction takes to apply, on every node. Transactions that are committed
// after the end of all faults take no time: a node that joined just before still has to apply all earlier ones.
func (w *World) appliesFor(g gtid.GTID) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write(g.UUID[:]) // it returns no error
	_, _ = h.Write([]byte{byte(w.options.Seed), byte(g.N), byte(g.N >> 8), byte(g.N >> 16)})
	n := h.Sum64()
	if !w.longApplies || n%longApplyEvery != 0 || w.healed != nil && !w.healed.Contains(g) {
		return 0
	}
	return longApplyMin + time.Duration(n/longApplyEvery)%longApplySpread
}

// applyFor returns how much longer the applier needs for its transaction. An applier that is stopped in the
// middle begins its transaction again.
func (m *mysqld) applyFor() time.Duration {
	g, ok := m.Applying()
	if !ok {
		m.inside = applying{}
		return 0
	}
	now := m.n.w.sched.now
	if m.inside.gtid != g {
		m.inside = applying{g, now}
	}
	takes := m.n.w.appliesFor(g)
	if m.inside.began == now && takes > 0 {
		m.n.log("applier", "%s takes %v", g, takes)
		m.n.w.longApplied++
	}
	return max(0, m.inside.began+takes-now)
}

// applyWork returns a number that changes while the applier works inside a transaction.
func (m *mysqld) applyWork() uint64 {
	if m.inside.gtid == (gtid.GTID{}) || m.n.applierBlocked > 0 {
		return 0
	}
	return uint64((m.n.w.sched.now - m.inside.began) / applyWorkStep)
}
