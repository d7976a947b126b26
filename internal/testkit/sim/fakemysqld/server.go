package fakemysqld

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

const (
	// flushGroupMaxDefault is how many sessions a flush group has at most.
	flushGroupMaxDefault = 8
	// rowEventBytesMaxDefault is binlog_row_event_max_size.
	rowEventBytesMaxDefault = 8 << 10
)

// Options are a server's settings. The fixed settings are in the facts: the must-have configuration.
type Options struct {
	// BinlogDir and BinlogBase are where log_bin points to.
	BinlogDir, BinlogBase string
	// ReplicaBinlog is log_replica_updates; semi-sync is then off until
	// EnableSemiSync.
	ReplicaBinlog bool
	ServerID      uint32
	// Rand decides how large a flush group is and how much a kill loses.
	Rand *rand.Rand
	// FlushGroupMax bounds a flush group; 0 is 8.
	FlushGroupMax int
	// MaxBinlogBytes is max_binlog_size; 0 is no limit.
	MaxBinlogBytes uint64
	// RowEventBytesMax is binlog_row_event_max_size; 0 is 8 KiB.
	RowEventBytesMax int
	// Now is the virtual time, for the events' dates; nil is always 0.
	Now func() time.Duration
}

// Server is a mysqld process. After its end only Results and the methods that read have an effect.
type Server struct {
	disk *Disk
	opt  Options

	dir   *binlogDir
	alive bool
	// executed and purged are the server's variables. taken is executed and the GTIDs of sessions that wait for
	// their engine commit.
	executed, purged, taken *gtid.Set
	// branches are the prepared XA transactions. notKept holds the GTIDs of XA PREPAREs that are only in
	// memory, even of XA transactions that have ended.
	branches []*branch
	notKept  gtid.Set
	xaBegun  bool

	pipeline
	semiSync
	replica
}

// Start starts a server, crash recovery included. It is super_read_only, its
// replica is stopped. At most one server may run on a disk.
func Start(d *Disk, o Options) *Server {
	if d.running != nil {
		panic("fakemysqld: the data directory is locked by another server")
	}
	if o.FlushGroupMax == 0 {
		o.FlushGroupMax = flushGroupMaxDefault
	}
	if o.RowEventBytesMax == 0 {
		o.RowEventBytesMax = rowEventBytesMaxDefault
	}
	if o.Now == nil {
		o.Now = func() time.Duration { return 0 }
	}
	s := &Server{disk: d, opt: o, alive: true}
	s.readOnly, s.semiSync.on = true, !o.ReplicaBinlog
	d.running = s
	s.recover()
	s.restoreBranches()
	s.openBinlog(uint32(epochSeconds + o.Now().Seconds()))
	return s
}

// recover decides about the transactions that InnoDB has prepared. Those in the binlog are committed,
// acknowledged or not (facts Q2.6). Without a binlog all are rolled back (facts Q4). The GTIDs of an
// old binlog count as executed, whether InnoDB has their transactions or not (facts Q3).
func (s *Server) recover() {
	e := &s.disk.engine
	inBinlog := &gtid.Set{}
	s.dir = s.disk.dirs[s.opt.BinlogDir]
	if s.dir == nil {
		s.dir = &binlogDir{}
		s.disk.dirs[s.opt.BinlogDir] = s.dir
	} else {
		newest := s.dir.files[len(s.dir.files)-1]
		newest.cutTorn()
		for _, g := range newest.gtids() {
			e.commitPrepared(g)
		}
		for _, f := range s.dir.files {
			for _, g := range f.gtids() {
				inBinlog.Add(g)
			}
		}
		e.save(inBinlog)
	}
	for len(e.prepared) > 0 {
		e.append(record{kind: rolledBack, gtid: e.prepared[0].gtid})
	}
	e.write()
	s.executed = e.gtids.Clone()
	s.taken = s.executed.Clone()
	s.purged = s.executed.Clone()
	s.purged.Subtract(inBinlog)
}

// commitPrepared commits g if it is prepared.
func (e *engine) commitPrepared(g gtid.GTID) {
	for _, r := range e.prepared {
		if r.gtid == g {
			e.append(record{kind: committed, gtid: g, op: r.op})
			return
		}
	}
}

// save keeps the GTIDs of set, which have no change in the engine.
func (e *engine) save(set *gtid.Set) {
	missing := set.Clone()
	missing.Subtract(e.gtids)
	if !missing.IsEmpty() {
		e.append(record{kind: saved, set: missing})
	}
}

// openBinlog begins the next binlog file.
func (s *Server) openBinlog(created uint32) {
	previous := s.executed.Clone()
	previous.Subtract(s.purged)
	timestamp := uint32(epochSeconds + s.opt.Now().Seconds())
	s.dir.files = append(s.dir.files, openFile(s.fileName(len(s.dir.files)+1), s.opt.ServerID, timestamp, created, previous))
}

func (s *Server) fileName(number int) string { return fmt.Sprintf("%s.%06d", s.opt.BinlogBase, number) }

func (s *Server) file() *binlogFile { return s.dir.files[len(s.dir.files)-1] }

// Alive reports whether the process runs.
func (s *Server) Alive() bool { return s.alive }

// Kill is SIGKILL. No session gets an answer. The last engine commits can be lost: those whose redo no
// later flush group has written (innodb_flush_log_at_trx_commit=2).
func (s *Server) Kill() {
	if !s.alive {
		return
	}
	s.die()
	s.disk.engine.lose(s.disk.engine.written, s.opt.Rand)
}

// StopGracefully is SIGTERM, SHUTDOWN or RESTART: semi-sync is switched off, so every session that waits for an
// ACK commits and answers OK (facts Q2, KILLER #1); the other sessions get no answer. It returns the results.
// While a tap is connected the real server takes seconds for that; the caller lets them pass, and a Kill in
// that time wins.
func (s *Server) StopGracefully() []Result {
	if !s.alive {
		return nil
	}
	s.semiSync.on = false
	s.release()
	s.saveGTIDs()
	s.file().synced = len(s.file().events)
	s.disk.engine.flush()
	s.die()
	return s.Results()
}

// saveGTIDs keeps the GTIDs of no-ops, of which InnoDB has no other trace.
// The server does so when it closes a binlog file (facts Q3, seen by running
// 9.7.4).
func (s *Server) saveGTIDs() { s.disk.engine.save(s.keptGTIDs()) }

// die ends the process: every session is cut off.
func (s *Server) die() {
	s.alive, s.disk.running = false, nil
	s.cutOff()
	s.semiSync, s.replica = semiSync{}, replica{}
}

// GTIDExecuted is @@gtid_executed. The caller may keep it.
func (s *Server) GTIDExecuted() *gtid.Set { return s.executed.Clone() }

// GTIDPurged is @@gtid_purged. The caller may keep it.
func (s *Server) GTIDPurged() *gtid.Set { return s.purged.Clone() }

// AddPurged is SET GLOBAL gtid_purged = '+set': its transactions count as done.
func (s *Server) AddPurged(set *gtid.Set) error {
	if !s.alive {
		return ErrGone
	}
	if set.Intersects(s.taken) {
		return fmt.Errorf("add %s to gtid_purged: it overlaps gtid_executed", set)
	}
	s.executed.Union(set)
	s.taken.Union(set)
	s.purged.Union(set)
	s.disk.engine.append(record{kind: saved, set: set.Clone()})
	s.disk.engine.write()
	return nil
}

// FlushEngineLogs is FLUSH LOCAL ENGINE LOGS: the present engine commits survive a power loss, and so
// do the GTIDs of no-ops (seen by running 9.7.4).
func (s *Server) FlushEngineLogs() {
	if s.alive {
		s.saveGTIDs()
		s.disk.engine.flush()
	}
}

// EngineLog returns the engine commits with a change, in their order.
// The caller must not change it.
func (s *Server) EngineLog() []gtid.GTID { return s.disk.EngineLog() }

// Values returns the values that a reader of key would see, also after the process has ended.
// The caller must not change it.
func (s *Server) Values(key string) []string { return s.disk.Values(key) }
