package local

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/agent/errant"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// saveErrant saves the transactions that the judge has found beyond the log. Their mysqld has
// ended: nothing waits for this.
func (m *Mysqld) saveErrant(ctx context.Context) {
	text := m.cfg.Board.Own().Errant
	if text == "" {
		return
	}
	line, all, err := m.saveErrantOf(ctx, text)
	if err != nil {
		line = "not saved: " + err.Error()
		m.cfg.Logger.Error("cannot save the transactions that mysqld has beyond the log", "gtids", text, "error", err)
	} else {
		m.cfg.Logger.Warn("mysqld has transactions beyond the log", "gtids", text, "saved", line)
	}
	m.cfg.Board.Update(func(s *status.Node) { s.ErrantSaved, s.ErrantAllSaved = line, err == nil && all })
}

// saveErrantOf returns the status text about the save, and whether the save is complete.
func (m *Mysqld) saveErrantOf(ctx context.Context, text string) (line string, all bool, err error) {
	set, err := gtid.ParseSet(text)
	if err != nil {
		return "", false, err
	}
	files, err := m.server.BinlogFiles()
	if err != nil {
		return "", false, err
	}
	save, dir, err := errant.New(m.cfg.ErrantDir).Save(ctx, time.Now(), set, files)
	if err != nil {
		return "", false, err
	}
	return save.Line(dir)
}
