package local

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/entry"
)

// grantsDump matches a GRANT that lets an account attach as a replica, whose
// ACKs would release commits that no log has. What else mysqld.Bypasses finds is left to the scan: dba may GRANT
// INSERT ON *.*, which does not include the schema mysql then.
var grantsDump = regexp.MustCompile(`(?is)\bGRANT\b.*(\bREPLICATION\s+SLAVE\b|\bREPLICATION_SLAVE_ADMIN\b|\bGROUP_REPLICATION_ADMIN\b|\bSUPER\b|\bALL(\s+PRIVILEGES)?\s+ON\s+\*\s*\.\s*\*)`)

// errForeignGrant fences before the statement is acknowledged: mysqld is
// killed while it waits and the statement is gone.
var errForeignGrant = errors.New("an account was being granted the right to attach as a replica")

// CheckGrants looks at the account statements of a batch before it is proposed.
func CheckGrants(b mysqlwire.Batch) error {
	_, body, err := entry.Parse(b.Data)
	if err != nil {
		return err
	}
	for ev, err := range binlog.Events(body) {
		if err != nil {
			return err
		}
		if ev.Type() != binlog.TypeQuery {
			continue
		}
		q, err := binlog.ParseQuery(ev)
		if err != nil {
			return err
		}
		if binlog.IsACLStatement(q.Text) && grantsDump.MatchString(q.Text) {
			return fmt.Errorf("%w: its replica could acknowledge what no log holds; a CDC reader attaches to the feed instead", errForeignGrant)
		}
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
