package binlog

import (
	"fmt"
	"iter"
)

// Transaction is one whole transaction.
type Transaction struct {
	GTIDInfo
	// Raw is its events with their checksums, the GTID event first. It aliases the bytes in
	// which it was found.
	Raw []byte
}

// Transactions yields the transactions in a concatenation of events, such as a
// log entry's body or the events of a binlog file (without Magic). Control
// events may stand between transactions and are skipped. At the first event that
// does not fit, or if the last transaction is not whole, it yields the error and
// ends. It does not verify checksums.
func Transactions(b []byte) iter.Seq2[Transaction, error] {
	return func(yield func(Transaction, error) bool) {
		var a Assembler
		start, at := 0, 0
		for e, err := range Events(b) {
			var step Step
			if err == nil {
				step, err = a.Feed(e)
			}
			if err == nil && step == StepControl && a.InTransaction() {
				err = fmt.Errorf("%w: type %d within transaction %v", ErrStream, e.Type(), a.Info().GTID)
			}
			if err != nil {
				yield(Transaction{}, fmt.Errorf("at byte %d: %w", at, err))
				return
			}
			if step == StepBegin {
				start = at
			}
			at += len(e)
			if step == StepEnd && !yield(Transaction{a.Info(), b[start:at:at]}, nil) {
				return
			}
		}
		if a.InTransaction() {
			yield(Transaction{}, fmt.Errorf("%w: transaction %v is not whole", ErrStream, a.Info().GTID))
		}
	}
}
