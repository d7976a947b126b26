package fakemysqld

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// Disk is mysqld's part of a node's disk: InnoDB and the binlog directories. Relay logs are not on
// it: relay_log_recovery throws them away.
type Disk struct {
	uuid    gtid.UUID
	engine  engine
	dirs    map[string]*binlogDir
	running *Server
}

type binlogDir struct{ files []*binlogFile }

// NewDisk returns the disk of an initialised server with no data.
func NewDisk(uuid gtid.UUID) *Disk {
	d := &Disk{uuid: uuid, dirs: map[string]*binlogDir{}}
	d.engine.replay()
	return d
}

// PowerLoss loses data that was not synced: a random tail of the redo log, that is of the engine
// commits in their order, and of the newest file in each binlog directory. A running server is
// killed.
func (d *Disk) PowerLoss(rng *rand.Rand) {
	if d.running != nil {
		d.running.Kill()
	}
	d.engine.lose(d.engine.synced, rng)
	d.engine.flush() // the other records reached the disk
	for _, name := range slices.Sorted(maps.Keys(d.dirs)) {
		files := d.dirs[name].files
		files[len(files)-1].losePower(rng)
	}
}

// RemoveBinlogs removes every binlog directory but keep, as an agent does.
func (d *Disk) RemoveBinlogs(keep string) {
	maps.DeleteFunc(d.dirs, func(name string, _ *binlogDir) bool { return name != keep })
}

// Copy returns a copy of InnoDB as the operating system has it, for a server with the given UUID: a
// snapshot, or a clone. It has no binlogs.
func (d *Disk) Copy(uuid gtid.UUID) *Disk {
	c := NewDisk(uuid)
	c.engine.redo = slices.Clone(d.engine.redo[:d.engine.written])
	c.engine.flush()
	c.engine.replay()
	return c
}

// Rename gives the disk, on which no server runs, another UUID.
func (d *Disk) Rename(uuid gtid.UUID) { d.uuid = uuid }

// EngineLog returns the engine commits with a change, in their order. It also works without a server on the
// disk. The caller must not change it.
func (d *Disk) EngineLog() []gtid.GTID { return d.engine.commits }

// Values returns the engine-committed values of key, in the order of their commits. It also works without a
// server on the disk. The caller must not change them.
func (d *Disk) Values(key string) []string { return d.engine.tables[key] }

// Keys returns the keys that have a table, sorted.
func (d *Disk) Keys() []string { return slices.Sorted(maps.Keys(d.engine.tables)) }

// engine is InnoDB: its redo log, and the state after replaying it.
type engine struct {
	redo []record
	// written is how many records the operating system has (they survive the
	// process), synced how many the disk has (they survive a power loss).
	written, synced int

	tables   map[string][]string
	gtids    *gtid.Set
	commits  []gtid.GTID
	prepared []record
	// xa holds the XA transactions that are prepared and marked to be kept.
	xa []record
}

// record is one record of the redo log. A commit and its GTID are one record: InnoDB keeps them in one
// mini-transaction (facts Q3).
type record struct {
	kind recordKind
	gtid gtid.GTID
	op   operation
	set  *gtid.Set
}

type recordKind uint8

const (
	prepared   recordKind = iota + 1 // gtid, op
	committed                        // gtid, op: prepared before or not (one-phase)
	rolledBack                       // gtid
	saved                            // set: GTIDs without a change (mysql.gtid_executed)
	endedHere                        // op: the end of an XA transaction without a GTID
)

// replay computes everything from the redo log.
func (e *engine) replay() {
	e.tables, e.gtids = map[string][]string{}, &gtid.Set{}
	e.commits, e.prepared, e.xa = nil, nil, nil
	for _, r := range e.redo {
		e.apply(r)
	}
}

func (e *engine) append(r record) {
	e.redo = append(e.redo, r)
	e.apply(r)
}

func (e *engine) apply(r record) {
	switch r.kind {
	case prepared:
		e.prepared = append(e.prepared, r)
	case rolledBack:
		e.unprepare(r.gtid)
	case saved:
		e.gtids.Union(r.set)
	case endedHere:
		e.endXA(r.op)
	case committed:
		e.unprepare(r.gtid)
		e.gtids.Add(r.gtid)
		e.commit(r)
	}
}

// commit applies a committed record.
func (e *engine) commit(r record) {
	if r.op.kind == XAPrepare {
		e.xa = append(e.xa, r)
		return
	}
	e.commits = append(e.commits, r.gtid)
	switch {
	case r.op.endsXA():
		e.endXA(r.op)
	case r.op.kind == NoOp:
		// Here it is no no-op: DROP TABLE IF EXISTS found the table.
		delete(e.tables, r.op.key)
	default:
		e.tables[r.op.key] = append(e.tables[r.op.key], r.op.value)
	}
}

func (e *engine) unprepare(g gtid.GTID) {
	e.prepared = slices.DeleteFunc(e.prepared, func(r record) bool { return r.gtid == g })
}

// hasTable reports whether the key has a table: the first write makes it.
func (e *engine) hasTable(key string) bool {
	_, found := e.tables[key]
	return found
}

// write hands the redo log to the operating system.
func (e *engine) write() { e.written = len(e.redo) }

// flush syncs the redo log.
func (e *engine) flush() { e.written, e.synced = len(e.redo), len(e.redo) }

// lose cuts a random number of records, but none of the first keep.
func (e *engine) lose(keep int, rng *rand.Rand) {
	n := keep + rng.IntN(len(e.redo)-keep+1)
	if n < len(e.redo) {
		clear(e.redo[n:])
		e.redo = e.redo[:n]
		e.replay()
	}
}
