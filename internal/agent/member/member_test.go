package member

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// clients stands for no clients.
type clients struct{ primary.Clients }

func (clients) Wake() {}

// TestObserversComeFirst: the world is told of Raft's new role, and of a full disk of the log, before the parts are;
// and the parts are told, too.
func TestObserversComeFirst(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	self := cluster.Member{ID: 1, Name: "a", Kind: cluster.KindFull}
	home := datadir.NewHome(datadir.New(vfs.NewMem(), "."), datadir.Identity{}, true)
	table := board.New(board.Config{
		Self: status.Node{ID: 1, Name: "a"}, State: cluster.NewState([]cluster.Member{self}), Known: membership.New(membership.Config{}), Now: time.Now,
	})
	log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	var m Member
	m.Init(Config{
		Self: self, Home: home, Board: table, State: new(datadir.State), Clock: clock.Machine{}, Now: time.Now, Logger: quiet,
		Slot:  primary.SlotConfig{Clients: clients{}, Clock: clock.Machine{}},
		Inbox: primary.InboxConfig{Clock: clock.Machine{}, Pick: rand.IntN},
		Shell: primary.Shell{Stepped: func(*role.Machine, role.Input, role.Phase, []role.Effect) {}},
	})
	m.log = log
	var saw []string
	r := m.raftConfig(consensus.Config{
		OnRole: func(consensus.RoleState) { saw = append(saw, string(rune('0'+table.Own().Leader))) },
		OnFull: func(err error) { saw = append(saw, string(table.Own().LogState)) },
	})
	if m.Raft, err = consensus.New(consensus.Config{Self: 1, Members: []cluster.Member{self}, Log: log, Heartbeat: time.Second, ElectionTimeout: 10 * time.Second, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	r.OnRole(consensus.RoleState{Term: 3, Leader: 2})
	r.OnFull(errors.New("full"))
	r.OnFull(nil)
	if want := []string{"0", "", string(status.LogFull)}; !slices.Equal(saw, want) {
		t.Errorf("the world saw %q; want %q", saw, want)
	}
	if own := table.Own(); own.Leader != 2 || own.LogState != status.LogOK {
		t.Errorf("the board says leader %d, log %q", own.Leader, own.LogState)
	}
}
