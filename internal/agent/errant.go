package agent

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/agent/errant"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// saveErrant saves the transactions that the judge has found beyond the log. Their mysqld has
// ended: nothing waits for this.
func (a *Agent) saveErrant(ctx context.Context) {
	text := a.board.Own().Errant
	if text == "" {
		return
	}
	line, all, err := a.saveErrantOf(ctx, text)
	if err != nil {
		line = "not saved: " + err.Error()
		a.logger.Error("what mysqld has beyond the log is not saved", "gtids", text, "error", err)
	} else {
		a.logger.Warn("what mysqld has beyond the log", "gtids", text, "saved", line)
	}
	a.board.Update(func(s *status.Node) { s.ErrantSaved, s.ErrantAllSaved = line, err == nil && all })
}

// saveErrantOf returns the status text about the save, and whether the save is complete.
func (a *Agent) saveErrantOf(ctx context.Context, text string) (line string, all bool, err error) {
	set, err := gtid.ParseSet(text)
	if err != nil {
		return "", false, err
	}
	files, err := a.server.BinlogFiles()
	if err != nil {
		return "", false, err
	}
	save, dir, err := errant.New(a.data.Join(errant.Dir)).Save(ctx, time.Now(), set, files)
	if err != nil {
		return "", false, err
	}
	return save.Line(dir)
}
