package agent

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/metrics"
)

// tapSeconds are how long batches take.
type tapSeconds struct{ receive, propose, release, ack prometheus.Histogram }

func newTapSeconds() tapSeconds {
	return tapSeconds{
		receive: metrics.Histogram("quorate_tap_receive_seconds", metrics.CoarseSeconds()),
		propose: metrics.Histogram("quorate_tap_propose_seconds", metrics.FineSeconds()),
		release: metrics.Histogram("quorate_ack_release_seconds", metrics.CoarseSeconds()),
		ack:     metrics.Histogram("quorate_tap_ack_seconds", metrics.FineSeconds()),
	}
}

// timedBatchesMax bounds the batches whose ACK is timed at once.
const timedBatchesMax = 4096

// tapTimes times the batches of one tap. It implements primary.TapObserver.
type tapTimes struct {
	tapSeconds

	mu        sync.Mutex
	timed     []timedBatch // in order of number
	committed int          // how many of them are
}

type timedBatch struct {
	number                  uint64
	receivedAt, committedAt time.Time
}

// Received implements primary.TapObserver: it notes when a batch came, once, though it may be tried
// twice.
func (e *tapTimes) Received(b mysqlwire.Batch) {
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
func (e *tapTimes) Proposed(b mysqlwire.Batch, _ error) {
	e.propose.Observe(time.Since(b.ReceivedAt).Seconds())
}

// Majority implements primary.TapObserver.
func (e *tapTimes) Majority(number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for ; e.committed < len(e.timed) && e.timed[e.committed].number <= number; e.committed++ {
		e.timed[e.committed].committedAt = now
	}
}

// Acknowledged implements primary.TapObserver.
func (e *tapTimes) Acknowledged(number uint64) {
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
func (e *tapTimes) Settled(uint64) {}

// ownEpoch is this node, as its epochs name it.
func (a *Agent) ownEpoch() entry.Epoch {
	own := a.board.Own()
	return entry.Epoch{Primary: a.self.Name, ServerUUID: parseUUID(own.ServerUUID), ServerVersion: own.ServerVersion}
}

// Incarnation implements primary.TapServer.
func (s localServer) Incarnation() uint64 { return s.process.Incarnation() }

// ConnectTap implements primary.TapServer.
func (s localServer) ConnectTap(ctx context.Context, _ primary.Epoch, cfg mysqlwire.TapConfig) (*mysqlwire.Tap, primary.TapObserver, error) {
	a := s.agent
	cfg.Socket, cfg.User, cfg.Password = a.server.Socket(), mysqld.TapUser, a.secrets.Tap
	cfg.ServerID, cfg.ReplicaUUID = a.serverID(serverIDOfTap), a.derivedUUID(uuidOfTap)
	cfg.HeartbeatPeriod, cfg.EntryBytesMax, cfg.StageBytesMin = a.cfg.Raft.ElectionTimeout, entryBytesMax, uint64(a.cfg.Log.StageSizeMin)
	tap, err := mysqlwire.ConnectTap(ctx, cfg)
	return tap, &tapTimes{tapSeconds: a.tapSeconds}, err
}

// grantsDump matches a GRANT that lets an account attach as a replica, whose
// ACKs would release commits that no log has.
var grantsDump = regexp.MustCompile(`(?is)\bGRANT\b.*(\bREPLICATION\s+SLAVE\b|\bREPLICATION_SLAVE_ADMIN\b|\bGROUP_REPLICATION_ADMIN\b|\bSUPER\b|\bALL(\s+PRIVILEGES)?\s+ON\s+\*\s*\.\s*\*)`)

// errForeignGrant fences before the statement is acknowledged: mysqld is
// killed while it waits and the statement is gone.
var errForeignGrant = errors.New("an account was being granted the right to attach as a replica")

// checkGrantStatements looks at the account statements of a batch before it is
// proposed.
func checkGrantStatements(b mysqlwire.Batch) error {
	_, body, err := entry.Parse(b.Data)
	if err != nil {
		return err
	}
	for ev, err := range binlog.Events(body) {
		if err != nil {
			return err
		}
		if ev.Type() != binlog.TypeQuery {
			continue
		}
		q, err := binlog.ParseQuery(ev)
		if err != nil {
			return err
		}
		if withheld(q.Text) {
			return fmt.Errorf("%w: its replica could acknowledge what no log holds; a CDC reader attaches to the feed instead", errForeignGrant)
		}
	}
	return nil
}
