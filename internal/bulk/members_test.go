package bulk

import (
	"testing"
	"testing/synctest"

	"github.com/quorate/quorate/internal/cluster"
)

// TestMembersComeAndGo: a stage goes to those who are members when it is begun, and a
// majority is one of the voters among them.
func TestMembersComeAndGo(t *testing.T) {
	const nodeD cluster.NodeID = 4
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 1)
		a := w.nodes[nodeA]
		a.SetMembers([]cluster.NodeID{nodeA, nodeD}, nil)
		w.nodes[nodeD].setDown(true)
		u, err := a.Upload(t.Context(), id1)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		a.SetMembers([]cluster.NodeID{nodeA, nodeB}, []cluster.NodeID{nodeC})
		data := content(1000)
		if _, err := u.Write(data); err != nil {
			t.Fatal(err)
		}
		sum := sumOf(data)
		if err := u.Finish(sum.bytes, sum.crc); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-u.majority:
			t.Error("a majority has the stage, and the other voter was down")
		default:
		}
		w.nodes[nodeD].setDown(false)
		if err := u.WaitMajority(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.nodes[nodeD].holds(t, id1, data)
		for _, id := range []cluster.NodeID{nodeB, nodeC} {
			if got, _, _ := w.nodes[id].stages.get(id1); len(got) > 0 {
				t.Errorf("node %d was no member, and has the stage", id)
			}
		}
	})
}
