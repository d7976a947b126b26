package commits

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/metrics"
)

// Times are how long the batches of a node's commits take, and how it has committed lately. Make one with New.
type Times struct {
	receive, propose, release, ack prometheus.Histogram
	rates                          rates
}

// New returns Times that have seen nothing.
func New() *Times {
	return &Times{
		receive: metrics.Histogram("quorate_tap_receive_seconds", metrics.CoarseSeconds()),
		propose: metrics.Histogram("quorate_tap_propose_seconds", metrics.FineSeconds()),
		release: metrics.Histogram("quorate_ack_release_seconds", metrics.CoarseSeconds()),
		ack:     metrics.Histogram("quorate_tap_ack_seconds", metrics.FineSeconds()),
	}
}

// Collectors are the histograms.
func (t *Times) Collectors() []prometheus.Collector {
	return []prometheus.Collector{t.receive, t.propose, t.release, t.ack}
}

// Observe returns an observer that times the batches of one tap.
func (t *Times) Observe() primary.TapObserver { return &observer{Times: t} }

// timedBatchesMax bounds the batches whose ACK is timed at once.
const timedBatchesMax = 4096

// observer times the batches of one tap.
type observer struct {
	*Times

	mu        sync.Mutex
	timed     []timedBatch // in order of number
	committed int          // how many of them are committed
}

type timedBatch struct {
	number                  uint64
	receivedAt, committedAt time.Time
}

// Received implements primary.TapObserver: it notes when a batch came, once, though it may be tried
// twice.
func (e *observer) Received(b mysqlwire.Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.timed); n > 0 && e.timed[n-1].number == b.Number {
		return
	}
	if at := writtenAt(b); !at.IsZero() {
		e.receive.Observe(max(0, b.ReceivedAt.Sub(at).Seconds())) // the clock may have been set
	}
	if len(e.timed) < timedBatchesMax {
		e.timed = append(e.timed, timedBatch{number: b.Number, receivedAt: b.ReceivedAt})
	}
}

// writtenAt is when mysqld wrote a batch's first transaction to its binlog, by the clock of this host;
// zero = the batch does not say it.
func writtenAt(b mysqlwire.Batch) time.Time {
	for event, err := range binlog.Events(b.Data[entry.HeaderBytes:]) {
		if err != nil || event.Type() != binlog.TypeGTID && event.Type() != binlog.TypeGTIDTagged {
			break
		}
		if info, err := binlog.ParseGTID(event); err == nil && info.ImmediateCommit > 0 {
			return time.UnixMicro(int64(info.ImmediateCommit))
		}
		break
	}
	return time.Time{}
}

// Proposed implements primary.TapObserver.
func (e *observer) Proposed(b mysqlwire.Batch, _ error) {
	e.propose.Observe(time.Since(b.ReceivedAt).Seconds())
}

// Majority implements primary.TapObserver.
func (e *observer) Majority(number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for ; e.committed < len(e.timed) && e.timed[e.committed].number <= number; e.committed++ {
		e.timed[e.committed].committedAt = now
	}
}

// Acknowledged implements primary.TapObserver.
func (e *observer) Acknowledged(number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, now := 0, time.Now()
	for ; n < e.committed && e.timed[n].number <= number; n++ {
		e.release.Observe(now.Sub(e.timed[n].committedAt).Seconds())
		e.ack.Observe(now.Sub(e.timed[n].receivedAt).Seconds())
	}
	e.timed, e.committed = append(e.timed[:0], e.timed[n:]...), e.committed-n
}

// Settled implements primary.TapObserver.
func (e *observer) Settled(uint64) {}
