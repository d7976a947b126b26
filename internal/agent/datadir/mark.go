package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// Durable is durable.json, the node's durable mark. Without it, purging the log waits for the
// next mark; nothing else is lost.
const Durable = "durable.json"

// MarkRecord is the content of durable.json.
type MarkRecord struct {
	Index   uint64 `json:"index"`
	Witness string `json:"witness"`
	// ServerUUID tells of which mysqld it is: a new data directory holds nothing of
	// what the old one held.
	ServerUUID string `json:"server_uuid"`
}

// Mark is the node's durable mark, on disk and in memory.
type Mark struct {
	dir Dir

	mu         sync.Mutex
	mark       replay.Mark
	serverUUID string
}

// Load reads the mark. Call it before anything else.
func (m *Mark) Load(d Dir) error {
	m.dir = d
	r, found, err := d.MarkRecord()
	if err != nil || !found {
		return err
	}
	m.mark, m.serverUUID = r.mark()
	return nil
}

// MarkRecord reads durable.json.
func (d Dir) MarkRecord() (r MarkRecord, found bool, err error) {
	f := File{Name: Durable, Remedy: "remove it, the node makes a new one"}
	found, err = d.Load(f, &r)
	if err == nil && found {
		if _, parsed := gtid.ParseGTID(r.Witness); parsed != nil {
			err = d.damaged(f, parsed.Error())
		}
	}
	return r, found, err
}

func (r MarkRecord) mark() (replay.Mark, string) {
	witness, _ := gtid.ParseGTID(r.Witness) // MarkRecord has checked it
	return replay.Mark{Index: r.Index, Witness: witness}, r.ServerUUID
}

// Check forgets the mark, until the next one, if it is of another data directory of mysqld:
// nothing may be purged that a new mysqld needs before it has said who it is.
// auto is the path of mysqld's auto.cnf.
func (m *Mark) Check(auto string) error {
	b, err := vfs.ReadFile(m.dir.fs, auto)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read mysqld's UUID: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serverUUID != "" && !strings.Contains(string(b), m.serverUUID) {
		m.mark, m.serverUUID = replay.Mark{}, ""
	}
	return nil
}

// Of returns the mark of the mysqld with this UUID: no mark if it is of another mysqld.
// While the UUID is not known yet ("") it returns the mark of the last mysqld.
func (m *Mark) Of(serverUUID string) replay.Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	if serverUUID != "" && serverUUID != m.serverUUID {
		return replay.Mark{}
	}
	return m.mark
}

// Advance stores a newer mark durably. A mark of the same mysqld never goes
// back.
func (m *Mark) Advance(serverUUID string, mark replay.Mark) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if serverUUID == m.serverUUID && mark.Index <= m.mark.Index {
		return nil
	}
	if err := m.dir.WriteMark(serverUUID, mark); err != nil {
		return err
	}
	m.mark, m.serverUUID = mark, serverUUID
	return nil
}

// NewMarkRecord is the record of a mysqld's mark.
func NewMarkRecord(serverUUID string, m replay.Mark) MarkRecord {
	return MarkRecord{Index: m.Index, Witness: m.Witness.String(), ServerUUID: serverUUID}
}

// WriteMark replaces durable.json by the mark of a mysqld.
func (d Dir) WriteMark(serverUUID string, m replay.Mark) error {
	return d.replace(Durable, NewMarkRecord(serverUUID, m))
}
