package invariant

import "fmt"

// Violation is the panic value of a broken invariant.
type Violation struct {
	// Name is the invariant's short name: "I1".."I9" or a package's own word.
	Name string
	// Detail says what was seen, with the values that prove it.
	Detail string
}

// Error makes a Violation usable as an error once it was recovered by a test.
func (v Violation) Error() string { return "invariant " + v.Name + " broken: " + v.Detail }

// Check panics with a Violation unless ok holds. The arguments are formatted
// only on failure, so a check on a hot path costs one branch.
func Check(ok bool, name, format string, args ...any) {
	if !ok {
		panic(Violation{Name: name, Detail: fmt.Sprintf(format, args...)})
	}
}
