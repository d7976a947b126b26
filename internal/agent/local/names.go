package local

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

const (
	// aboutNames is the key of the reserved names among the board's troubles, aboutGrants that of the withheld privileges.
	aboutNames  = board.Last + "names"
	aboutGrants = board.Last + "withheld privileges"
	// accountsEvery is how often LookAtAccounts looks: it reads the stored definitions of all views.
	accountsEvery = time.Minute
)

// LookAtAccounts reports accounts and definers of a primary with reserved names, and older accounts with forbidden
// privileges. It refuses nothing, because anybody who can create an account could then block every promotion.
func (m *Mysqld) LookAtAccounts(ctx context.Context, p *mysqld.Process) {
	var names, grants string
	if m.cfg.Board.Own().Role == status.RolePrimary {
		if time.Since(m.accountsLooked) < accountsEvery {
			return
		}
		m.accountsLooked = time.Now()
		reserved, err := p.Admin().ReservedNames(ctx)
		withheld, err2 := p.Admin().WithheldGrants(ctx)
		if err = errors.Join(err, err2); err != nil {
			m.cfg.Logger.Warn("cannot look at the accounts: trying again in a minute", "error", err)
			return
		}
		if len(reserved) > 0 {
			names = "these names are reserved for quorate, and a later version may use them: " +
				strings.Join(reserved, ", ") + ": drop or rename them"
		}
		if len(withheld) > 0 {
			grants = "accounts hold privileges that are withheld here: " + textOf(withheld) + ": create these accounts again without them (docs/dba.md says how)"
		}
	}
	for about, text := range map[string]string{aboutNames: names, aboutGrants: grants} {
		if m.cfg.Board.SetTrouble(about, text) && text != "" {
			m.cfg.Logger.Warn(text)
		}
	}
}

// textOf names accounts and what they hold.
func textOf(grants []mysqld.Grant) string {
	texts := make([]string, len(grants))
	for i, g := range grants {
		texts[i] = g.Account + " (" + g.Privilege + ")"
	}
	return strings.Join(texts, ", ")
}
