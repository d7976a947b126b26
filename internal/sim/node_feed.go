package sim

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/binlog"
	"github.com/quorate/quorate/internal/replay"
)

const (
	// connectRetry is SOURCE_CONNECT_RETRY.
	connectRetry = time.Second
	feedServerID = 1 << 30
	// piecesAtOnce is how many pieces go to the replica before others have a turn.
	piecesAtOnce = 4
)

// feedSession is one replication connection of the local mysqld to its agent's
// feed: what mysqlwire's feed is around a replay.Cursor.
type feedSession struct {
	a      *agent
	p      *mysqld
	cursor *replay.Cursor
	due    bool
	ended  bool
}

// startReplica is START REPLICA: the I/O thread connects soon.
func (a *agent) startReplica(p *mysqld) {
	p.StartReplica()
	a.connectFeed(p, time.Millisecond)
	p.applySoon()
}

func (a *agent) connectFeed(p *mysqld, after time.Duration) {
	if a.feed != nil {
		a.feed.end()
	}
	s := &feedSession{a: a, p: p}
	a.feed = s
	a.life.after(after+around(a.n.rng, 2*time.Millisecond), s.begin)
}

// stopReplica is STOP REPLICA.
func (a *agent) stopReplica(p *mysqld) {
	if a.feed != nil {
		a.feed.end()
	}
	p.StopReplica()
}

func (s *feedSession) end() {
	s.ended = true
	if s.a.feed == s {
		s.a.feed = nil
	}
	if !s.p.dead {
		s.p.Disconnect()
	}
}

// begin asks mysqld what it has, and finds its place in the log.
func (s *feedSession) begin() {
	if s.ended || s.p.dead {
		return
	}
	prefix, err := replay.FindPrefix(s.a.committedLog(), s.p.GTIDExecuted(), s.a.n.mark)
	if err == nil {
		s.cursor, err = replay.NewCursor(s.a.committedLog(), prefix)
	}
	if err != nil {
		s.a.n.log("feed", "cannot start: %v", err)
		s.a.connectFeed(s.p, connectRetry)
		return
	}
	index, skip := s.cursor.Position()
	s.a.n.log("feed", "begins at %d, skips %d", index, skip)
	s.wake()
}

func (s *feedSession) wake() {
	if !s.due && s.cursor != nil && !s.ended {
		s.due = true
		s.a.life.after(socketMin+around(s.a.n.rng, socketMean), s.pump)
	}
}

func (s *feedSession) pump() {
	s.due = false
	if s.ended || s.p.dead {
		return
	}
	for range piecesAtOnce {
		p, ok, err := s.cursor.Next()
		if err == nil && !ok {
			return
		}
		if err == nil {
			err = s.send(p)
		}
		if err != nil {
			s.a.n.log("feed", "ends: %v", err)
			s.end()
			return
		}
	}
	s.wake()
}

// send gives one piece to the replica.
func (s *feedSession) send(p replay.Piece) error {
	events := p.Events
	if p.Staged != nil {
		var err error
		if events, err = s.a.stageBytes(p.Staged.ID); err != nil {
			return err
		}
	}
	if p.FormatDescription != nil {
		event, err := binlog.ParseEvent(p.FormatDescription)
		if err == nil {
			event, err = binlog.CleanFormatDescription(event, false)
		}
		if err != nil {
			return fmt.Errorf("prepare format description: %w", err)
		}
		s.a.boundaries++
		name := fmt.Sprintf("quorate.%012d", s.a.boundaries)
		if err := s.p.Receive(binlog.AppendFakeRotate(nil, feedServerID, name, 4)); err != nil {
			return err
		}
		if err := s.p.Receive(event); err != nil {
			return err
		}
	}
	for event, err := range binlog.Events(events) {
		if err == nil {
			err = s.p.Receive(event)
		}
		if err != nil {
			return err
		}
	}
	s.p.applySoon()
	return nil
}
