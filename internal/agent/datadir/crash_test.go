package datadir

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/log/vfs/vfstest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// life is what a process writes into one file, step after step, and how the next process
// reads it.
type life struct {
	name  string
	steps []func(d Dir) error
	read  func(d Dir) (any, error)
}

func lives() []life {
	var mark Mark
	members := []cluster.Member{{ID: 1, Name: "a"}}
	quiet := slog.New(slog.DiscardHandler)
	state := func(version uint64) func(Dir) error {
		return func(d Dir) error {
			return d.WriteState(cluster.StatePoint{State: cluster.State{Version: version, Members: members}, Index: version})
		}
	}
	advance := func(index uint64) func(Dir) error {
		return func(Dir) error {
			return mark.Advance("uuid", replay.Mark{Index: index, Witness: gtid.GTID{UUID: gtid.UUID{1}, N: index}})
		}
	}
	pin := func(k Instances) func(Dir) error { return func(d Dir) error { return d.WritePins(k) } }
	meet := func(k Instances) func(Dir) error { return func(d Dir) error { return d.WriteMet(k) } }
	known := func(d Dir) (any, error) {
		pins, met, err := d.Known()
		return []Instances{pins, met}, err
	}
	return []life{
		{Peers, []func(Dir) error{pin(Instances{2: "b"}), pin(Instances{2: "b", 3: "c"}), pin(Instances{})}, known},
		{Met, []func(Dir) error{meet(Instances{2: "b"}), meet(Instances{2: "b", 3: "c"}), meet(Instances{3: "c"})}, known},
		{ClusterState, []func(Dir) error{state(0), state(1), state(2)}, func(d Dir) (any, error) { return d.State(members, false, 1) }},
		{Durable, []func(Dir) error{func(d Dir) error { return mark.Load(d) }, advance(5), advance(3), advance(9)}, func(d Dir) (any, error) {
			var m Mark
			err := m.Load(d)
			return m.Of("uuid"), err
		}},
		{Promise, []func(Dir) error{
			func(d Dir) error { return d.WritePromise(time.Second) },
			func(d Dir) error { _, err := d.Promised(5*time.Second, time.Minute, quiet); return err },
			func(d Dir) error { return d.WritePromise(time.Second) },
		}, func(d Dir) (any, error) { p, err := d.Promised(1, time.Minute, quiet); return p.Longest, err }},
		{Fence, []func(Dir) error{
			func(d Dir) error { return d.WriteFence(cluster.Fence{By: "ann"}) }, Dir.RemoveFence,
			func(d Dir) error { return d.WriteFence(cluster.Fence{By: "bob"}) },
		}, func(d Dir) (any, error) { return d.Fence() }},
		{Refused, []func(Dir) error{
			func(d Dir) error { return d.WriteRefused([]cluster.Recovery{{Version: 1}}) },
			func(d Dir) error { return d.WriteRefused([]cluster.Recovery{{Version: 1}, {Version: 2}}) },
		}, func(d Dir) (any, error) { return d.Refused() }},
		{Site, []func(Dir) error{
			func(d Dir) error { return d.WriteSiteHeard(cluster.SiteHeard{Site: "west", Term: 1, Executed: "a"}) },
			func(d Dir) error { return d.WriteSiteHeard(cluster.SiteHeard{Site: "west", Term: 1, Executed: "ab"}) },
		}, func(d Dir) (any, error) { return d.SiteHeard() }},
		{Heard, []func(Dir) error{
			func(d Dir) error { return d.WriteHeard(map[cluster.NodeID]HeardNeed{2: {LogFirst: 1}}) },
			func(d Dir) error { return d.WriteHeard(map[cluster.NodeID]HeardNeed{2: {LogFirst: 7}}) },
		}, func(d Dir) (any, error) { return d.Heard() }},
		{Hook, []func(Dir) error{
			func(d Dir) error { return d.WriteHookNote(HookNote{Sequence: 1, Role: "primary"}) },
			func(d Dir) error { return d.WriteHookNote(HookNote{Sequence: 2, Role: "replica", Pending: true}) },
		}, func(d Dir) (any, error) { return d.HookNote() }},
		{Key, []func(Dir) error{
			func(d Dir) error { return d.WriteKeyNote(KeyNote{Shown: "q1:b", Former: "q1:a"}) },
			func(d Dir) error { return d.WriteKeyNote(KeyNote{Shown: "q1:c", Former: "q1:b"}) },
		}, func(d Dir) (any, error) { return d.KeyNote() }},
	}
}

func text(t *testing.T, v any, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestCrashEverywhere ends the process at each operation of each write, with a loss of power or without, and reads
// what each legal disk has. All steps that returned are there; the step under way is there as a whole or not at all.
// Nothing goes back.
func TestCrashEverywhere(t *testing.T) {
	for i, l := range lives() {
		t.Run(l.name, func(t *testing.T) {
			mem := vfs.NewMem()
			d := New(mem, ".")
			v, err := l.read(New(mem.CrashClone(1), "."))
			states := []string{text(t, v, err)} // after 0, 1, 2, … steps
			for _, step := range l.steps {
				if err := step(d); err != nil {
					t.Fatal(err)
				}
				v, err := l.read(New(mem.CrashClone(0), "."))
				states = append(states, text(t, v, err))
			}
			torn, whole, done := 0, 0, 0
			do := func(fs vfs.FS) error {
				done = 0
				for _, step := range lives()[i].steps {
					if err := step(New(fs, ".")); err != nil {
						return err
					}
					done++
				}
				return nil
			}
			vfstest.Interruptions(t, vfs.NewMem, do, func(t *testing.T, disk *vfs.Mem) {
				v, err := l.read(New(disk, "."))
				switch got := text(t, v, err); got {
				case states[done+1]:
					whole++
				case states[done]:
					torn++
				default:
					t.Errorf("after %d steps: %s, want %s or %s", done, got, states[done], states[done+1])
				}
			})
			if torn == 0 || whole == 0 {
				t.Errorf("a step was there %d times, and not %d times: the test has tested nothing", whole, torn)
			}
		})
	}
}
