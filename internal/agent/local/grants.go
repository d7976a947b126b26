package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// errForeignGrant fences before the statement is acknowledged: mysqld is
// killed while it waits and the statement is gone.
var errForeignGrant = errors.New("an account was being granted the right to attach as a replica")

// CheckAccounts checks a statement on accounts before it is proposed.
func CheckAccounts(q binlog.Query) error {
	if mysqld.Attaches(q) {
		return fmt.Errorf("%w: such a replica could acknowledge transactions that are in no log; downstream readers use the readers' port instead", errForeignGrant)
	}
	return nil
}

// grantsError says that accounts hold privileges that they must not have.
type grantsError struct{ accounts string }

func (e *grantsError) Error() string {
	return fmt.Sprintf("accounts hold privileges with which commits can go unreplicated: %s: no primary opens with them; docs/follow.md, An account with too much, says what to do", e.accounts)
}

// JudgeGrants looks for accounts whose replicas could acknowledge commits. It implements primary.JudgedServer.
func (s running) JudgeGrants(ctx context.Context) error {
	grants, err := s.ScanGrants(ctx)
	if err != nil || len(grants) == 0 {
		return err
	}
	return &grantsError{accounts: textOf(grants)}
}
