package fakemysqld

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// The errors 1236 with which a dump is refused (facts Q7).
var (
	ErrReplicaAhead   = errors.New("fakemysqld: 1236 replica has more GTIDs than the source")
	ErrSourcePurged   = errors.New("fakemysqld: 1236 source purged required GTIDs")
	errDumpNotStarted = errors.New("fakemysqld: no file holds what follows the excluded GTIDs")
)

// Dump is a dump connection of the tap, the only semi-sync replica.
type Dump struct {
	server  *Server
	exclude *gtid.Set
	// file is the index of the file that it reads, next the index of the event to send next; -1: the file is
	// not announced yet.
	file, next int
	// name and offset are the end of the last event that was sent, or of the range that was skipped.
	name   string
	offset uint64
	// skipped: transactions were skipped since the last event.
	skipped bool
}

// OpenDump begins a dump by COM_BINLOG_DUMP_GTID with an empty name and position 4, which is no ACK. It ends
// the earlier dump (kill_zombie_dump_threads).
func (s *Server) OpenDump(exclude *gtid.Set) (*Dump, error) {
	if !s.alive {
		return nil, ErrGone
	}
	own := &gtid.Set{}
	for src, iv := range exclude.Intervals() {
		if src.UUID != s.disk.uuid {
			continue
		}
		if err := own.AddInterval(src.UUID, src.Tag, iv.Start, iv.End); err != nil {
			return nil, fmt.Errorf("read excluded GTIDs: %w", err)
		}
	}
	if !s.taken.ContainsSet(own) {
		return nil, ErrReplicaAhead
	}
	if !exclude.ContainsSet(s.purged) {
		return nil, ErrSourcePurged
	}
	for i := len(s.dir.files) - 1; i >= 0; i-- {
		if exclude.ContainsSet(s.dir.files[i].previous) {
			s.dump = &Dump{server: s, exclude: exclude.Clone(), file: i, next: -1}
			return s.dump, nil
		}
	}
	return nil, errDumpNotStarted
}

// Open tells whether the connection is open: the server runs and has no newer dump.
func (d *Dump) Open() bool { return d.server.dump == d }

// Close ends the connection. A server may notice that late; until then it counts
// the client.
func (d *Dump) Close() {
	if d.Open() {
		d.server.dump = nil
	}
}

// Next returns the next event as the connection sends it, without the semi-sync header; ok=false if there is
// none now or the connection is closed. The caller must not change it.
func (d *Dump) Next() (event []byte, ok bool) {
	if !d.Open() {
		return nil, false
	}
	files := d.server.dir.files
	for {
		f := files[d.file]
		if d.next < 0 {
			d.next, d.name, d.offset = 0, f.name, binlogMagicBytes
			return binlog.AppendFakeRotate(nil, f.serverID, f.name, binlogMagicBytes), true
		}
		for d.next < len(f.events) && d.excludes(f.events[d.next]) {
			d.offset, d.skipped = f.events[d.next].end, true
			d.next++
		}
		if d.skipped { // before the next event, or before waiting for it
			d.skipped = false
			return d.Heartbeat(), true
		}
		if d.next < len(f.events) {
			e := f.events[d.next]
			d.offset = e.end
			d.next++
			return sent(e.raw), true
		}
		if d.file+1 == len(files) {
			return nil, false
		}
		d.file, d.next = d.file+1, -1
	}
}

func (d *Dump) excludes(e fileEvent) bool { return e.inTransaction && d.exclude.Contains(e.gtid) }

// sent returns an event of a file as a dump sends it.
func sent(raw binlog.Event) []byte {
	if raw.Type() != binlog.TypeFormatDescription {
		return raw
	}
	clean, err := binlog.CleanFormatDescription(raw, false)
	if err != nil {
		panic(err) // openFile made it.
	}
	return clean
}

// Heartbeat returns what an idle source sends: the end of the last event that was sent, acknowledged or not
// (traces A1), or of what was skipped behind it. It is nil before the first event.
func (d *Dump) Heartbeat() []byte {
	if !d.Open() || d.name == "" {
		return nil
	}
	return binlog.AppendHeartbeatV2(nil, d.server.opt.ServerID, d.name, d.offset)
}
