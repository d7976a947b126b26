package entry

import "fmt"

// Order is the position in a sequence of entries: the epoch, and the number in it.
type Order struct {
	Epoch, Number uint64
	// Known is false where the sequence starts in the middle of an epoch, before its first entry.
	Known bool
}

// OrderAt returns the position after an entry with this header, which must count (Header.Counts).
func OrderAt(h Header) Order { return Order{Epoch: h.Term, Number: h.Number, Known: true} }

// Next returns the position after one more entry of an epoch, or an error that says why that entry may not
// follow (I2).
func (o Order) Next(h Header) (Order, error) {
	switch {
	case h.Kind == KindEpoch && h.Number != 0:
		return o, fmt.Errorf("it opens epoch %d with number %d", h.Term, h.Number)
	case h.Kind == KindEpoch && h.Term <= o.Epoch:
		return o, fmt.Errorf("it opens epoch %d after epoch %d", h.Term, o.Epoch)
	case h.Kind == KindEpoch || !o.Known: // a new epoch, or no entry of this epoch was seen before
	case h.Term != o.Epoch:
		return o, fmt.Errorf("it has number %d of epoch %d, in force is epoch %d, at number %d", h.Number, h.Term, o.Epoch, o.Number)
	case h.Number != o.Number+1:
		return o, fmt.Errorf("its number in epoch %d is %d after %d", h.Term, h.Number, o.Number)
	}
	return OrderAt(h), nil
}

// Counts tells whether an entry with such a header counts in its epoch.
func (h Header) Counts() bool { return h.Kind != KindEmpty && h.Kind != KindState }
