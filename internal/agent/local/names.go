package local

import (
	"context"
	"errors"
	"fmt"
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
	aboutZones  = board.Last + "time zones of sessions"
	// accountsEvery is how often LookAtAccounts looks: it reads the stored definitions of all views.
	accountsEvery = time.Minute
	// zonesEvery is how often LookAtTables looks: it reads all definitions of columns. zonesAgain is for a look that failed or
	// found some. zonesTime is how long it may take.
	zonesEvery = time.Hour
	zonesAgain = time.Minute
	zonesTime  = 5 * time.Second
	// zonesMax is how many tables are named.
	zonesMax = 5
)

// LookAtTables reports tables of a primary where replicas may store other values, or stop, because of a session's time
// zone. look is mysqld.Admin's ZoneDependent.
func (m *Mysqld) LookAtTables(ctx context.Context, look func(context.Context) ([]string, error)) {
	text := ""
	if m.cfg.Board.Own().Role != status.RolePrimary {
		m.tablesDue = time.Time{}
	} else {
		if time.Now().Before(m.tablesDue) {
			return
		}
		m.tablesDue = time.Now().Add(zonesAgain)
		within, cancel := context.WithTimeout(ctx, zonesTime)
		defer cancel()
		tables, err := look(within)
		if err != nil {
			m.cfg.Logger.Warn("cannot look at the tables: trying again in a minute", "error", err)
			return
		}
		if more := len(tables) - zonesMax; more > 0 {
			tables = append(tables[:zonesMax], fmt.Sprintf("%d more", more))
		}
		if len(tables) == 0 {
			m.tablesDue = time.Now().Add(zonesEvery)
		} else {
			text = "tables derive something from the time zone of a session: " + strings.Join(tables, ", ") +
				": after SET time_zone replicas may store other values there, or stop (docs/dba.md says what to do)"
		}
	}
	if m.cfg.Board.SetTrouble(aboutZones, text) && text != "" {
		m.cfg.Logger.Warn(text)
	}
}

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
