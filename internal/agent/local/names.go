package local

import (
	"context"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

const (
	// aboutNames keys the reserved names among the board's troubles.
	aboutNames = "names"
	// namesEvery is how often they are looked for: it reads what is stored of all views.
	namesEvery = time.Minute
)

// LookForNames says which accounts and definers of a primary have names of quorate's own. It
// refuses nothing: whoever may make accounts could stop every promotion with one.
func (m *Mysqld) LookForNames(ctx context.Context, p *mysqld.Process) {
	text := ""
	if m.cfg.Board.Own().Role == status.RolePrimary {
		if time.Since(m.namesLooked) < namesEvery {
			return
		}
		names, err := p.Admin().ReservedNames(ctx)
		if err != nil {
			return // it is asked again, or is going
		}
		m.namesLooked = time.Now()
		if len(names) > 0 {
			text = "these names are reserved for quorate, and a later version may use them: " +
				strings.Join(names, ", ") + ": drop or rename them"
		}
	}
	if m.cfg.Board.SetTrouble(aboutNames, text) && text != "" {
		m.cfg.Logger.Warn(text)
	}
}
