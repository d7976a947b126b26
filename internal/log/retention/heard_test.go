package retention

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/vfs"
)

// TestHeardNeeds: after a restart of this agent the needs of a member are still known, from what the member
// last said with the data directory that the cluster gave it.
func TestHeardNeeds(t *testing.T) {
	b := status.Node{
		ID: 2, Name: "b", Kind: cluster.KindFull, Instance: "first", Role: status.RoleReplica, Mysqld: status.MysqldRunning,
		LogState: status.LogOK, LogFirst: 3, LogCommit: 70, DurableMark: 60,
	}
	silent := status.Node{ID: 2, Name: "b", Kind: cluster.KindFull}
	self := status.Node{ID: 1, Name: "a", Role: status.RolePrimary}
	path := filepath.Join(t.TempDir(), datadir.Heard)
	restarted := func() *Heard {
		h := &Heard{}
		h.Load(datadir.New(vfs.OS{}, filepath.Dir(path)), slog.New(slog.DiscardHandler))
		return h
	}
	h := restarted()
	for _, said := range []status.Node{b, silent} { // the second time after a restart
		if err := h.note(1, []status.Node{self, said}); err != nil {
			t.Fatal(err)
		}
		h = restarted()
	}
	member := cluster.Member{ID: 2, Name: "b", Kind: cluster.KindFull}
	with := func(instance string) cluster.State {
		m := member
		m.Instance = instance
		return cluster.State{Members: []cluster.Member{{ID: 1, Name: "a"}, m}}
	}
	later := b
	later.LogCommit = 90
	for name, c := range map[string]struct {
		state cluster.State
		now   status.Node
		want  status.Node
	}{
		"silent":                   {with(""), silent, b},
		"silent, of that instance": {with("first"), silent, b},
		"rebuilt since":            {with("second"), silent, silent},
		"heard":                    {with(""), later, later},
	} {
		if diff := cmp.Diff([]status.Node{self, c.want}, h.fill(c.state, []status.Node{self, c.now})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if err := h.note(1, []status.Node{self}); err != nil { // b was removed
		t.Fatal(err)
	}
	if diff := cmp.Diff([]status.Node{silent}, restarted().fill(with(""), []status.Node{silent})); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	for _, damaged := range []string{"{", `{"2": {"log_first": 3}, "3": 1}`, ""} {
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		h := restarted()
		if diff := cmp.Diff([]status.Node{silent}, h.fill(with(""), []status.Node{silent})); diff != "" || len(h.need) != 0 {
			t.Errorf("damaged as %q (-want +got):\n%s", damaged, diff)
		}
		if err := h.note(1, []status.Node{self, b}); err != nil {
			t.Fatal(err)
		}
		if len(restarted().need) != 1 {
			t.Errorf("damaged as %q: what is heard since is not kept", damaged)
		}
	}
}
