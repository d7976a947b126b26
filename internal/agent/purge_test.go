package agent

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/log/retention"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// TestPurgeNamesWhatTheArchiveLacks: who purges the log is told what the archive has not stored.
func TestPurgeNamesWhatTheArchiveLacks(t *testing.T) {
	p := cluster.PurgePlan{UpTo: 20, Segments: []cluster.PurgeSegment{{First: 5, Last: 20, Purge: true}}}
	for _, c := range []struct {
		archived uint64
		known    bool
		want     string
	}{
		{20, true, ""},
		{0, false, ""},
		{10, true, "the archive has the log up to entry 10, and lacks entries 11-20: it gets them only if another node still has them"},
		{2, true, "the archive has the log up to entry 2, and lacks entries 5-20: it gets them only if another node still has them"},
	} {
		if got := archiveLacks(p, c.archived, c.known); got != c.want {
			t.Errorf("%d, %t: %q, want %q", c.archived, c.known, got, c.want)
		}
	}
}

// sealedLog is a log of which a purge takes the oldest segments.
type sealedLog struct{ segments []seglog.SegmentInfo }

func (l *sealedLog) Segments() []seglog.SegmentInfo { return l.segments }
func (l *sealedLog) Purge(upTo uint64) (removed []seglog.SegmentInfo, err error) {
	for l.segments[0].LastIndex <= upTo {
		removed, l.segments = append(removed, l.segments[0]), l.segments[1:]
	}
	return removed, nil
}

// TestPurgeTakesNoMoreThanWasConfirmed: a person confirms a plan, and takes time for it. Meanwhile more of the log may
// go. Only what the plan has is removed. An older "quorate" names no bound: then all that
// may go is removed, as before.
func TestPurgeTakesNoMoreThanWasConfirmed(t *testing.T) {
	a, _ := asked(t)
	for _, c := range []struct {
		args string
		upTo uint64
	}{
		{`{"retention_size":0,"up_to":20}`, 20},
		{`{"retention_size":0,"up_to":19}`, 10},
		{`{"retention_size":0,"up_to":9}`, 0},
		{`{"retention_size":0}`, 30},
	} {
		log := &sealedLog{[]seglog.SegmentInfo{
			{FirstIndex: 1, LastIndex: 10, Bytes: 1, Sealed: true}, {FirstIndex: 11, LastIndex: 20, Bytes: 1, Sealed: true},
			{FirstIndex: 21, LastIndex: 30, Bytes: 1, Sealed: true}, {FirstIndex: 31, LastIndex: 31, Bytes: 1},
		}}
		a.Purger = retention.New(retention.Config{
			Name: "a", Log: log, Committed: new(consensus.Committed), KeepState: func() {}, Now: time.Now, Logger: a.logger,
			Nodes: func() []status.Node {
				return []status.Node{{Name: "a", Kind: cluster.KindFull, Role: status.RolePrimary, LogCommit: 31, DurableMark: 31}}
			},
			StateNeed: func() replay.Need { return replay.Need{Known: true, From: 31} },
		})
		done, err := operate.Typed(a.controlPurge)(t.Context(), control.Request{Name: "log.purge", Args: json.RawMessage(c.args)})
		p, _ := done.Result.(cluster.PurgePlan)
		if err != nil || p.UpTo != c.upTo || p.Done != (c.upTo != 0) || log.segments[0].FirstIndex != c.upTo+1 {
			t.Errorf("%s: %v, up to %d, the log begins at %d, want up to %d", c.args, err, p.UpTo, log.segments[0].FirstIndex, c.upTo)
		}
	}
}
