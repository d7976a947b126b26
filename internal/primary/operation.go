package primary

import (
	"errors"

	"github.com/quorate/quorate/internal/core"
)

// ErrNoMysqld fails an operation on a mysqld that has ended.
var ErrNoMysqld = errors.New("mysqld is not running")

// VerdictError fails an operation with another verdict than core.Failed.
type VerdictError struct {
	Verdict core.Verdict
	Reason  string
}

func (e *VerdictError) Error() string { return e.Reason }

// Done is what an operation came to, as core is told.
func Done(op core.OpID, incarnation uint64, err error) core.Done {
	done := core.Done{Op: op, Verdict: core.OK, Incarnation: incarnation}
	if err != nil {
		done.Verdict, done.Reason = core.Failed, err.Error()
		var v *VerdictError
		if errors.As(err, &v) {
			done.Verdict = v.Verdict
		}
	}
	return done
}
