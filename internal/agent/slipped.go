package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/mysqld"
)

// errSlipped ends a former primary on which a statement was committed that no log
// has.
var errSlipped = errors.New("a statement that read-only does not stop (FLUSH TABLES) came while semi-sync was off")

// judgeSlipped looks whether something was committed while semi-sync was off for a
// moment: FLUSH TABLES and its like write to the binlog of a read-only server. Its
// GTID is in no log and would make this node errant; but so far only mysqld's memory
// and its binlog have it, and both go with the process. The new binlog that comes
// next would have it written to a table.
//
// What is under way is looked at first: it takes its GTID before, and gets into
// gtid_executed after. What comes later waits for an ACK.
func (a *Agent) judgeSlipped(ctx context.Context, p *mysqld.Process) error {
	pending, err := p.Admin().InCommit(ctx)
	if err != nil {
		return err
	}
	executed, err := a.executed(ctx)
	if err != nil {
		return err
	}
	return slipped(pending, executed, a.committedGTIDs())
}

func slipped(pending bool, executed, committed *gtid.Set) error {
	if pending {
		return fmt.Errorf("%w: it is still under way", errSlipped)
	}
	extra := executed.Clone()
	extra.Subtract(committed)
	if !extra.IsEmpty() {
		return fmt.Errorf("%w: %s", errSlipped, extra)
	}
	return nil
}
