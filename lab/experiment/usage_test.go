package experiment

import (
	"testing"

	"github.com/quorate/quorate/lab/peers"
)

// TestGrown: threads that began or ended between the two looks count, and nothing counts twice.
func TestGrown(t *testing.T) {
	mysqld := peers.Part{Node: "a", Component: "mysqld"}
	at := func(counts ...int64) map[peers.Thread]int64 {
		all := map[peers.Thread]int64{}
		for id, n := range counts {
			if n >= 0 {
				all[peers.Thread{Part: mysqld, ID: id}] = n
			}
		}
		return all
	}
	for _, test := range []struct {
		name                string
		before, late, after map[peers.Thread]int64
		want                int64
	}{
		{"nothing ran", at(5, 7), at(5, 7), at(5, 7), 0},
		{"all live", at(5, 7), at(8, 9), at(10, 10), 8},
		{"one began", at(5), at(5, 3), at(5, 4), 4},
		{"one ended", at(5, 7), at(8, 9), at(10, -1), 7},
		{"one came and went", at(5), at(6, 20), at(7, -1), 22},
		{"one ended before anybody looked", at(5, 7), at(6, -1), at(7, -1), 2},
		{"nobody looked late", at(5), nil, at(6), 1},
	} {
		if got := grown(test.before, test.after, test.late); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
