package mysqlwire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

const (
	// appliedWait bounds how long one question may wait until mysqld has applied the next piece: heartbeats wait
	// for the answer.
	appliedWait = 100 * time.Millisecond
	// appliedSaid is how long a dump waits for mysqld before a warning is logged.
	appliedSaid = time.Minute
	// appliedPause is how long mysqld is not asked again after it could not be asked.
	appliedPause = time.Second
)

// appliedCursor hands a piece out once the local mysqld has applied it. Tools ask that mysqld for the definition of a
// table as soon as they read of it in the log. If mysqld did not have the table yet, some tools would leave its rows
// out silently.
type appliedCursor struct {
	Cursor
	// applied waits for a short time, and tells whether mysqld has these transactions.
	applied func(*gtid.Set) bool
	// waits is called once for a piece that has waited for appliedSaid.
	waits func(*gtid.Set)
	held  *Piece
	holds *gtid.Set
	since time.Time
	said  bool
}

func (c *appliedCursor) Next() (*Piece, <-chan struct{}, error) {
	if c.held == nil {
		p, more, err := c.Cursor.Next()
		if p == nil || err != nil {
			return nil, more, err
		}
		c.held, c.holds, c.since, c.said = p, p.gtids(), time.Now(), false
	}
	if !c.applied(c.holds) {
		if !c.said && time.Since(c.since) > appliedSaid {
			c.said = true
			c.waits(c.holds)
		}
		again := make(chan struct{})
		close(again)
		return nil, again, nil
	}
	p := c.held
	c.held, c.holds = nil, nil
	return p, nil, nil
}

func (c *appliedCursor) Close() {
	if c.held != nil {
		c.held.drop()
	}
	c.Cursor.Close()
}

// gtids returns the piece's transactions. It leaves out what cannot be read: the error shows when
// the piece is sent.
func (p Piece) gtids() *gtid.Set {
	set := &gtid.Set{}
	for transaction, err := range binlog.Transactions(p.Events) {
		if err != nil {
			return set
		}
		set.Add(transaction.GTID)
	}
	if p.Stage != nil {
		size := p.Stage.Size()
		if id, err := stagedGTID(bufio.NewReaderSize(io.NewSectionReader(p.Stage, 0, size), partBytesMax), size); err == nil {
			set.Add(id)
		}
	}
	return set
}

// applied waits, at most appliedWait, until the local mysqld has the transactions of set. It also returns true where
// mysqld cannot be asked: then the tool cannot ask it either, and gets the log without the wait.
func (s *feedSession) applied(ctx context.Context, set *gtid.Set) bool {
	if set.IsEmpty() || time.Now().Before(s.sql.awayUntil) {
		return true
	}
	timedOut, err := "", error(nil)
	for range 2 { // mysqld ends a session that was silent for long
		var q *sqlServer
		if q, err = s.sqlServer(ctx); err != nil {
			break
		}
		if err = q.conn.SetDeadline(time.Now().Add(appliedWait + appliedPause)); err != nil {
			break
		}
		if timedOut, err = q.value(fmt.Sprintf("SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', %g)", set, appliedWait.Seconds())); err == nil {
			s.sql.awayUntil = time.Time{}
			return timedOut == "0" && q.conn.SetDeadline(time.Time{}) == nil
		}
		s.endSQL()
	}
	if ctx.Err() != nil {
		return false
	}
	if e, ok := errors.AsType[*ServerError](err); s.sql.awayUntil.IsZero() && (!ok || e.Code != codeAway) {
		s.feed.cfg.Logger.Warn("a reader with SQL gets the log without regard to what mysqld has applied", "reader", s.reader.User, "error", err)
	}
	s.sql.awayUntil = time.Now().Add(appliedPause)
	return true
}

// saysWaits logs that a reader waits for this node's mysqld: its applier has stopped, or a client holds a lock.
func (s *feedSession) saysWaits(set *gtid.Set) {
	s.feed.cfg.Logger.Warn("a reader with SQL waits for what this node's mysqld has not applied for a minute", "reader", s.reader.User, "gtids", cut(set.String(), 400))
}
