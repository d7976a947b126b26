package consensus

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/raft/entry"
)

// TestTimings: the stages of a proposal follow one another. If the commit comes before the node's own fsync is
// known, it is no stage of its own.
func TestTimings(t *testing.T) {
	data := func(number uint64) []byte {
		d := make([]byte, entry.HeaderBytes)
		entry.SetHeader(d, entry.Header{Kind: entry.KindTransactions, Term: 2, Number: number})
		return d
	}
	tm := newTimings()
	tm.proposed(10*time.Second, data(1))
	tm.proposed(11*time.Second, data(2))
	tm.appended(13*time.Second, &Write{took: time.Second, batch: []*pb.Message{{Entries: []*pb.Entry{{Data: data(1)}}}}})
	tm.committed(18*time.Second, Mark{Epoch: 2, Number: 2})
	for name, c := range map[string]struct {
		h     interface{ Write(*dto.Metric) error }
		count uint64
		sum   float64
	}{"append": {tm.appendSeconds, 1, 1}, "fsynced": {tm.fsyncedSeconds, 1, 3}, "majority": {tm.majoritySeconds, 1, 5}, "committed": {tm.committedSeconds, 2, 8 + 7}} {
		var m dto.Metric
		if err := c.h.Write(&m); err != nil {
			t.Fatal(err)
		}
		if h := m.GetHistogram(); h.GetSampleCount() != c.count || h.GetSampleSum() != c.sum {
			t.Errorf("%s: %d in %v s, want %d in %v s", name, h.GetSampleCount(), h.GetSampleSum(), c.count, c.sum)
		}
	}
	if len(tm.pending) != 0 {
		t.Errorf("pending: %+v", tm.pending)
	}
}
