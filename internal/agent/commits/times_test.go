package commits

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/entry"
)

// TestTimes: each stage is timed once for a batch, and costs no memory.
func TestTimes(t *testing.T) {
	events := binlogtest.New("q.000001").Statement("INSERT")
	events[0][binlog.HeaderBytes+42] = 1 // its commit was 1 µs after 1970
	binlog.PutChecksum(events[0])
	data := append(make([]byte, entry.HeaderBytes), binlogtest.Join(events...)...)
	e := &observer{Times: New()}
	number := uint64(0)
	batch := func() {
		number++
		b := mysqlwire.Batch{Number: number, Data: data, ReceivedAt: time.Now()}
		e.Received(b)
		e.Received(b)
		e.Proposed(b, nil)
		e.Majority(number)
		e.Majority(number)
		e.Acknowledged(number)
	}
	const rounds = 100
	if n := testing.AllocsPerRun(rounds-1, batch); n != 0 {
		t.Errorf("%v allocations for a batch", n)
	}
	for name, h := range map[string]prometheus.Histogram{"receive": e.receive, "propose": e.propose, "release": e.release, "ack": e.ack} {
		m := dto.Metric{}
		if err := h.Write(&m); err != nil {
			t.Fatal(err)
		}
		if got := m.GetHistogram().GetSampleCount(); got != rounds {
			t.Errorf("%s: %d samples of %d batches", name, got, rounds)
		}
	}
	if len(e.timed) != 0 || e.committed != 0 {
		t.Errorf("%d batches are left, %d committed", len(e.timed), e.committed)
	}
	e.Received(mysqlwire.Batch{Number: number + 1, Data: data})
	e.Acknowledged(number + 1) // without a commit it has no ACK
	if len(e.timed) != 1 {
		t.Error("an ACK without a commit was timed")
	}
}
