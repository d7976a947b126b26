package sim

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// smallWrite is a write of a small file that waits for the disk.
type smallWrite struct{ do func() error }

// write makes a small file durable, which takes as long as an append.
func (a *agent) write(do func() error) error {
	n, w := a.n, &smallWrite{do}
	n.writes = append(n.writes, w)
	a.life.sleep(n.disk.appendTime(a.w.sched.now))
	n.writes = slices.DeleteFunc(n.writes, func(other *smallWrite) bool { return other == w })
	return do()
}

// cutWrites ends the process while it writes small files: before, inside of or after the
// calls of one of them.
func (n *node) cutWrites(onCrash func()) {
	for _, w := range n.writes {
		n.disk.callsLeft, n.disk.onCrash = n.rng.IntN(6), onCrash
		if err := w.do(); err != nil {
			n.log("crash", "inside of a small file: %v", err)
			return
		}
	}
}

// openFiles reads the small files.
func (a *agent) openFiles() (err error) {
	n := a.n
	if err := a.kept.Load(a.files, n.w.initial.Members, true, a.log.FirstIndex()); err != nil {
		return err
	}
	if err := a.kept.Write(a.kept.Point()); err != nil {
		return err
	}
	if err := a.mark.Load(a.files); err != nil {
		return err
	}
	a.heard.Load(a.files, n.logger("purge"))
	n.retime()
	if a.promised, _, err = a.files.Promised(n.timing.election, electionTimeoutMax, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	if a.known, err = n.openKnown(a.files, func(id cluster.NodeID) bool { return a.board.Lives(id) }); err != nil {
		return err
	}
	a.board = a.newBoard()
	return nil
}

// durableMark is what durable.json says.
func (n *node) durableMark() replay.Mark {
	var m datadir.Mark
	if err := m.Load(n.disk.files()); err != nil {
		n.w.fail("sim", "n%d: %v", n.id, err)
	}
	return m.Of(n.uuid.String())
}

// state is what cluster.json says, over a log that begins at first.
func (n *node) state(first uint64) cluster.StatePoint {
	p, err := n.disk.files().State(n.w.initial.Members, true, first)
	if err != nil {
		n.w.fail("sim", "n%d: %v", n.id, err)
	}
	return p
}

// replaceMark puts another durable.json in place, or none if there is no mark.
func (n *node) replaceMark(m replay.Mark) {
	err := n.disk.mem.RemoveAll(datadir.Durable)
	if m.Index > 0 {
		err = datadir.New(n.disk.mem, ".").WriteMark(n.uuid.String(), m)
	}
	err = errors.Join(err, n.disk.mem.SyncDir("."))
	if err != nil {
		n.w.fail("sim", "n%d: %v", n.id, err)
	}
}
