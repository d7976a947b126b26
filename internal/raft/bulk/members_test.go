package bulk

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

const (
	nodeD cluster.NodeID = nodeC + 1 + iota
	nodeE
)

func ids(ids ...cluster.NodeID) []cluster.NodeID { return ids }

// TestMajorityIsOfTheVotersOfNow: the voters change while a stage is under way, or after it is
// complete. The majority that the stage needs is then that of the present voters.
func TestMajorityIsOfTheVotersOfNow(t *testing.T) {
	for _, c := range []struct {
		name                      string
		began, voters, outgoing   []cluster.NodeID
		up                        []cluster.NodeID // the peers that can be dialled
		before, after, withoutOut bool             // whether a majority holds the stage; withoutOut: without outgoing voters
	}{
		{"two dead of five are removed", ids(1, 2, 3, 4, 5), ids(1, 2, 3), nil, ids(2), false, true, true},
		{"but not so far", ids(1, 2, 3, 4, 5), ids(1, 2, 3), ids(1, 2, 3, 4, 5), ids(2), false, false, true},
		{"and those of before have it", ids(1, 2, 3, 4, 5), ids(1, 2, 3), ids(1, 2, 3, 4, 5), ids(2, 4), true, true, true},
		{"who is new has none of it so far", ids(1, 2), ids(1, 3, 4), nil, ids(), false, false, false},
		{"who is new gets it", ids(1, 2), ids(1, 3, 4), nil, ids(3), false, true, true},
		{"of another one it counts for nothing", ids(1, 2, 3), ids(1, 4), nil, ids(5), false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 5, 0)
				a := w.nodes[nodeA]
				for id := nodeB; id <= nodeE; id++ {
					w.nodes[id].setDown(true)
				}
				for _, id := range c.up {
					w.nodes[id].setDown(false)
				}
				a.SetMembers(c.began, nil, nil)
				u := uploaded(t, a, id1, content(3*chunkBytes))
				look := func(when string, want bool) {
					t.Helper()
					time.Sleep(5 * time.Second)
					synctest.Wait()
					if got := u.Reached(); got != want {
						t.Errorf("%s: a majority has it: %t", when, got)
					}
				}
				look("before", c.before)
				a.SetMembers(c.voters, c.outgoing, nil)
				look("after", c.after)
				a.SetMembers(c.voters, nil, nil)
				look("once the change is complete", c.withoutOut)
			})
		})
	}
}

// TestRebuiltNodeHoldsNothing: a node held a stage, lost its vote and its data, and gets its vote back. It counts
// only once it holds the stage again.
func TestRebuiltNodeHoldsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 5, 0)
		a, b := w.nodes[nodeA], w.nodes[nodeB]
		for id := nodeC; id <= nodeE; id++ {
			w.nodes[id].setDown(true)
		}
		data := content(3 * chunkBytes)
		u := uploaded(t, a, id1, data)
		synctest.Wait()
		b.holds(t, id1, data)
		a.SetMembers(ids(nodeA, nodeC, nodeD, nodeE), nil, ids(nodeB)) // b is asked again, and still holds the stage
		synctest.Wait()
		b.setDown(true)
		b.stages.drop(id1)
		a.SetMembers(ids(nodeA, nodeB, nodeC), nil, nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if u.Reached() {
			t.Fatal("the copy of before was counted")
		}
		b.setDown(false)
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		b.holds(t, id1, data)
	})
}

// TestMembersComeAndGo: a stage goes to each node that was a member at any time while the stage was under way.
func TestMembersComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 5, 0)
		a := w.nodes[nodeA]
		a.SetMembers(ids(nodeA, nodeB), nil, nil)
		u, err := a.Upload(t.Context(), id1)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		data := content(1000)
		if _, err := u.Write(data[:500]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a.SetMembers(ids(nodeA, nodeC), nil, ids(nodeD))
		if _, err := u.Write(data[500:]); err != nil {
			t.Fatal(err)
		}
		sum := sumOf(data)
		if err := u.Finish(sum.bytes, sum.crc); err != nil {
			t.Fatal(err)
		}
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, id := range ids(nodeB, nodeC, nodeD) {
			w.nodes[id].holds(t, id1, data)
		}
		w.nodes[nodeE].lacks(t, id1)
		u.Close()
		a.SetMembers(ids(nodeA, nodeE), nil, nil)
		synctest.Wait()
		w.nodes[nodeE].lacks(t, id1)
	})
}

// TestStageThatThisDiskDoesNotGiveBack: a stage that this node cannot read back is not pushed again and again. The
// writer of the stage, and the caller that waits for a majority, get the error.
func TestStageThatThisDiskDoesNotGiveBack(t *testing.T) {
	for name, fail := range map[string]func(f *fakeStages){
		"unreadable": func(f *fakeStages) { f.onRead = func(int64) error { return syscall.EIO } },
		"unreadable further behind": func(f *fakeStages) {
			f.onRead = func(off int64) error {
				if off < 2*chunkBytes {
					return nil
				}
				return syscall.EIO
			}
		},
		"cannot be opened": func(f *fakeStages) { f.onOpen = func() error { return fmt.Errorf("open: %w", syscall.EIO) } },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 3, 0)
				a := w.nodes[nodeA]
				fail(a.stages)
				u, err := a.Upload(t.Context(), id1)
				if err != nil {
					t.Fatal(err)
				}
				defer u.Close()
				if _, err := u.Write(content(3 * chunkBytes)); err != nil && !errors.Is(err, ErrUnreadable) {
					t.Fatal(err)
				}
				err = u.WaitMajority() // it must not be context.Canceled: the agent would take that for its own stop
				if !errors.Is(err, ErrUnreadable) || !errors.Is(err, syscall.EIO) || errors.Is(err, context.Canceled) {
					t.Errorf("WaitMajority: %v", err)
				}
				if _, err := u.Write(nil); !errors.Is(err, ErrUnreadable) {
					t.Errorf("Write: %v", err)
				}
				if n := len(w.nodes[nodeB].dialled()); n > 1 {
					t.Errorf("it was tried %d times", n)
				}
			})
		})
	}
}

// TestCopiesThatFailAreSaid: Blocked names a peer whose copy is needed and fails again and again, for another reason
// than a full disk.
func TestCopiesThatFailAreSaid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		a, b := w.nodes[nodeA], w.nodes[nodeB]
		w.nodes[nodeC].setDown(true)
		b.setDown(true)
		u := uploaded(t, a, id1, content(10))
		synctest.Wait()
		if got := a.Blocked(); len(got) > 0 {
			t.Errorf("after one failure: %v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		got := a.Blocked()
		if len(got) != 1 || !cmp.Equal(got[0].Failing, ids(nodeB, nodeC)) || len(got[0].Full) > 0 || !errors.Is(got[0].Why, errLinkDown) {
			t.Errorf("blocked: %+v", got)
		}
		b.setDown(false)
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		if got := a.Blocked(); len(got) > 0 {
			t.Errorf("still blocked: %v", got)
		}
	})
}
