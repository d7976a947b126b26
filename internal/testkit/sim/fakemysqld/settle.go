package fakemysqld

import "github.com/quorate/quorate/internal/mysql/gtid"

// BinlogEnd is where the binlog ends.
func (s *Server) BinlogEnd() (file string, offset uint64) { return s.file().name, s.file().end }

// Binlogged returns the transactions in the binlogs of this process, in their order.
func (s *Server) Binlogged() (all []gtid.GTID) {
	for _, f := range s.dir.files {
		all = append(all, f.gtids()...)
	}
	return all
}

// Flushable tells whether Flush has a session that waits for no lock.
func (s *Server) Flushable() bool {
	passed := tableLocks{}
	for _, t := range s.queue {
		if passed.free(t.op) && s.locks.free(t.op) {
			return true
		}
		passed.take(t.op)
	}
	return false
}

// EndLockWaiters ends the clients' sessions that wait for the lock of a table. They have no place in the
// binlog yet.
func (s *Server) EndLockWaiters() {
	waiters, left := s.lockWaiters()
	for _, t := range waiters {
		s.finish(t, Gone)
	}
	s.queue = left
}

// LockWaiters counts the sessions that EndLockWaiters would end.
func (s *Server) LockWaiters() int {
	waiters, _ := s.lockWaiters()
	return len(waiters)
}

func (s *Server) lockWaiters() (waiters, others []*session) {
	passed := tableLocks{}
	for _, t := range s.queue {
		if passed.free(t.op) && s.locks.free(t.op) {
			others = append(others, t)
		} else {
			waiters = append(waiters, t)
		}
		passed.take(t.op)
	}
	return waiters, others
}
