package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// ledgerCheckMax limits the search in one table's history. The search ends far earlier: every read returns the
// whole list, so there are few orders to try.
const ledgerCheckMax = 20 * time.Second

// tableInput is one operation on a table. The state of the model is the number of final values that the table
// has. All values are different and are only appended, so the number tells which values these are.
type tableInput struct {
	append   bool
	position int      // of the value in the final table; -1 = it is not there
	read     []string // what a read returned
}

// tableModel is an append-only list whose final content is known.
func tableModel(final []string) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			n, in := state.(int), input.(tableInput)
			if in.append {
				return in.position == n, n + 1
			}
			return len(in.read) == n && slices.Equal(in.read, final[:n]), n
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	}
}

// ledger checks the clients' answers: the history of each table must be linearizable and must end with the
// values that all servers have.
func (c *checker) ledger() {
	byKey := map[string][]*request{}
	var keys []string
	for _, r := range c.concerning(c.w.load.history) {
		if byKey[r.key] == nil {
			keys = append(keys, r.key)
		}
		byKey[r.key] = append(byKey[r.key], r)
	}
	for _, key := range keys {
		c.table(key, c.w.someReplica().mysqlDisk.Values(key), byKey[key])
	}
}

func (c *checker) table(key string, final []string, history []*request) {
	at := map[string]int{}
	for i, v := range final {
		if _, found := at[v]; found {
			c.w.fail("ledger", "table %s has %s twice", key, v)
		}
		at[v] = i
	}
	var ops []porcupine.Operation
	for _, r := range history {
		op := porcupine.Operation{ClientId: r.client, Call: int64(r.call), Return: int64(r.end)}
		if r.end == 0 || r.outcome == unknown {
			op.Return = math.MaxInt64
		}
		position, there := at[r.value]
		switch {
		case r.kind == dropping, r.outcome == unknown && (r.kind == selecting || !there):
			continue // it had no effect, or nobody can tell
		case r.kind == appending && !there:
			c.w.fail("I7", "table %s lacks %s, acknowledged at %v", key, r.value, r.end)
		}
		op.Input = tableInput{r.kind == appending, position, r.read}
		ops = append(ops, op)
	}
	if result := porcupine.CheckOperationsTimeout(tableModel(final), ops, ledgerCheckMax); result != porcupine.Ok {
		c.w.fail("ledger", "the history of table %s is not linearizable (%s): %s", key, result, firstAnomaly(history, at))
	}
}

// firstAnomaly names a read that contradicts an earlier answer, if there is such a read. Most wrong histories
// have one.
func firstAnomaly(history []*request, at map[string]int) string {
	for _, read := range history {
		if read.kind != selecting || read.outcome != succeeded {
			continue
		}
		for _, r := range history {
			if r.kind == appending && r.outcome == succeeded && r.end < read.call && at[r.value] >= len(read.read) {
				return fmt.Sprintf("a read from %v to %v misses %s, acknowledged at %v", read.call, read.end, r.value, r.end)
			}
		}
	}
	return "no single read is stale"
}
