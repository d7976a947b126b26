package fakemysqld

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// binlogFile is one binlog file. Its bytes are Magic and the events.
type binlogFile struct {
	name     string
	serverID uint32
	// previous is the set in its PREVIOUS_GTIDS event.
	previous *gtid.Set
	events   []fileEvent
	// end is the offset behind the last event.
	end uint64
	// synced is how many events at least survive a power loss. It counts only in the newest file: a rotation
	// syncs the others (facts Q1).
	synced int
	// committed is the number of the last transaction that was committed in the engine.
	sequence, committed uint64
}

// fileEvent is one event of a file.
type fileEvent struct {
	raw binlog.Event
	end uint64
	// inTransaction is set for the events of a transaction. gtid is the transaction's GTID, and last marks its
	// last event.
	inTransaction, last bool
	gtid                gtid.GTID
}

// openFile begins a file and syncs it (facts Q1). created is set in the first file of a process.
func openFile(name string, serverID, timestamp, created uint32, previous *gtid.Set) *binlogFile {
	f := &binlogFile{name: name, serverID: serverID, previous: previous, end: binlogMagicBytes}
	f.append(formatDescription(created), timestamp, binlog.FlagInUse)
	f.append(eventBody{binlog.TypePreviousGTIDs, previous.AppendBinary(nil)}, timestamp, binlog.FlagIgnorable)
	f.synced = len(f.events)
	return f
}

// append writes an event to the file.
func (f *binlogFile) append(b eventBody, timestamp uint32, flags uint16) *fileEvent {
	length := eventOverheadBytes + len(b.body)
	f.end += uint64(length)
	raw := make([]byte, 0, length)
	raw = append(binary.LittleEndian.AppendUint32(raw, timestamp), byte(b.kind))
	raw = binary.LittleEndian.AppendUint32(raw, f.serverID)
	raw = binary.LittleEndian.AppendUint32(raw, uint32(length))
	raw = binary.LittleEndian.AppendUint32(raw, uint32(f.end))
	raw = append(binary.LittleEndian.AppendUint16(raw, flags), b.body...)
	raw = append(raw, 0, 0, 0, 0)
	binlog.PutChecksum(raw)
	f.events = append(f.events, fileEvent{raw: raw, end: f.end})
	return &f.events[len(f.events)-1]
}

// transaction writes a GTID event and the events that belong to it.
func (f *binlogFile) transaction(g gtid.GTID, c transactionClock, events []eventBody) {
	restBytes := 0
	for _, e := range events {
		restBytes += eventOverheadBytes + len(e.body)
	}
	first := gtidBody(g, c, len(events) > 1, restBytes)
	timestamp := epochSeconds + uint32(c.commit.Seconds())
	for i, b := range append([]eventBody{first}, events...) {
		e := f.append(b, timestamp, 0)
		e.inTransaction, e.gtid, e.last = true, g, i == len(events)
	}
}

// close ends the file with a ROTATE to the next one.
func (f *binlogFile) close(next string, timestamp uint32) {
	body := append(binary.LittleEndian.AppendUint64(nil, binlogMagicBytes), next...)
	f.append(eventBody{binlog.TypeRotate, body}, timestamp, 0)
}

// losePower cuts a random part of the bytes that were not synced.
func (f *binlogFile) losePower(rng *rand.Rand) {
	f.events = f.events[:f.synced+rng.IntN(len(f.events)-f.synced+1)]
	f.synced = len(f.events)
}

// cutTorn cuts an incomplete transaction at the end of the file.
func (f *binlogFile) cutTorn() {
	n := len(f.events)
	for n > 0 && f.events[n-1].inTransaction && !f.events[n-1].last {
		n--
	}
	f.events, f.end = f.events[:n], binlogMagicBytes
	if n > 0 {
		f.end = f.events[n-1].end
	}
}

// gtids returns the transactions of the file, in order.
func (f *binlogFile) gtids() []gtid.GTID {
	var out []gtid.GTID
	for _, e := range f.events {
		if e.last {
			out = append(out, e.gtid)
		}
	}
	return out
}
