package datadir

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
)

func write(t *testing.T, fs vfs.FS, name, text string) {
	t.Helper()
	f, err := fs.Create(name)
	if err == nil {
		_, err = f.WriteAt([]byte(text), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDamage: whatever is wrong with a file, one line says which file, what is wrong and
// what to do.
func TestDamage(t *testing.T) {
	newer := `{"format": 9, "state": 7, "refused": 7}`
	for _, c := range []struct {
		name, text, want string
	}{
		{Peers, "", "peers.json is damaged: put it back, or rebuild this node (it is empty)"},
		{Peers, "\x00\x00\x00", "peers.json is damaged: put it back, or rebuild this node (all of its 3 bytes are zero)"},
		{Peers, `{"2": "b`, "peers.json is damaged: put it back, or rebuild this node (it ends in the middle, after 8 bytes)"},
		{Peers, `{"2": 7}`, "cannot unmarshal number"},
		{Met, "[", "met.json is damaged: remove it, and the agent goes by peers.json (it ends in the middle"},
		{ClusterState, "{", "cluster.json is damaged: copy it from another node of the cluster (it ends"},
		{ClusterState, `{"format": 1, "state": {"version": 3}}`, "(it has no members)"},
		{ClusterState, newer, "cluster.json has format 9, this quorate reads up to 1: install the newer quorate again"},
		{ClusterState, `{"format": 1, "state": {"version": 3, "members": [{}], "format": 10}}`, "cluster.json has format 10, this quorate reads up to 9: install the newer quorate again"},
		{Durable, "{", "durable.json is damaged: remove it, the node makes a new one"},
		{Durable, `{"index": 7, "witness": "x"}`, "durable.json is damaged: remove it, the node makes a new one"},
		{Fence, "7", "fence.json is damaged: remove it, and fence this node again"},
		{Refused, "{", "refused.json is damaged: put it back"},
		{Refused, newer, "refused.json has format 9, this quorate reads up to 1"},
	} {
		mem := vfs.NewMem()
		write(t, mem, c.name, c.text)
		var l life
		for _, l = range lives() {
			if l.name == c.name {
				break
			}
		}
		if v, err := l.read(New(mem, ".")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %q: %v, %v, want %q", c.name, c.text, v, err, c.want)
		}
	}
}
