package primary

import (
	"errors"

	"github.com/quorate/quorate/internal/role"
)

// ErrNoMysqld fails an operation on a mysqld that has ended.
var ErrNoMysqld = errors.New("mysqld is not running")

// VerdictError fails an operation with another verdict than role.Failed.
type VerdictError struct {
	Verdict role.Verdict
	Reason  string
}

func (e *VerdictError) Error() string { return e.Reason }

// Done returns the outcome of an operation, as the role machine is told it.
func Done(op role.OpID, incarnation uint64, err error) role.Done {
	done := role.Done{Op: op, Verdict: role.OK, Incarnation: incarnation}
	if err != nil {
		done.Verdict, done.Reason = role.Failed, err.Error()
		var v *VerdictError
		if errors.As(err, &v) {
			done.Verdict = v.Verdict
		}
	}
	return done
}
