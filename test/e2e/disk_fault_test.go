package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/faultmount"
)

// faultDisks puts a directory of each node's data_dir on a disk that fails on
// command. They are well again when the test ends, and gone after it.
func (f *fixture) faultDisks(t *testing.T, dir string) (disks []*faultmount.Mount) {
	t.Helper()
	all := make([]int, f.Len())
	for i := range all {
		all[i] = i
	}
	return f.faultDisksOf(t, dir, all...)
}

// faultDisksOf is faultDisks for some nodes; it returns their disks.
func (f *fixture) faultDisksOf(t *testing.T, dir string, nodes ...int) (disks []*faultmount.Mount) {
	t.Helper()
	if err := faultmount.Available(); err != nil {
		t.Skip(err)
	}
	ctx := scenarioContext(t)
	t.Cleanup(func() { // last: before the cluster's directory is removed
		for _, d := range disks {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(func() {
		for _, d := range disks {
			if err := d.SetFaults(); err != nil { // what hangs in it can be killed
				t.Error(err)
			}
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, i := range nodes {
		if f.AgentPID(i) != 0 {
			if err := f.Terminate(ctx, i); err != nil {
				t.Fatal(err)
			}
		}
		at, disk := filepath.Join(f.DataDir(i), dir), filepath.Join(f.DataDir(i), dir+".disk")
		info, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Rename(at, disk), os.Mkdir(at, info.Mode().Perm())); err != nil {
			t.Fatal(err)
		}
		d, err := faultmount.Start(ctx, disk, at)
		if err != nil {
			t.Fatal(err)
		}
		disks = append(disks, d)
	}
	return disks
}

// diskFault is one way in which a disk under a node breaks, under load.
type diskFault struct {
	name string
	// follower: not the primary's disk.
	follower bool
	fault    faultmount.Fault
	// ends: the agent ends, and the end of its log contains the text says. Otherwise the node's status
	// contains it, asked on another node.
	ends bool
	says string
}

// eio, full, readOnly and hangs are how disks fail.
func eio(ops faultmount.Op) faultmount.Fault { return faultmount.Fault{Ops: ops, Errno: syscall.EIO} }
func full() faultmount.Fault                 { return faultmount.Fault{Ops: faultmount.Grow, Errno: syscall.ENOSPC} }
func readOnly() faultmount.Fault {
	return faultmount.Fault{Ops: faultmount.Writes, Errno: syscall.EROFS}
}
func hangs() faultmount.Fault { return faultmount.Fault{Ops: faultmount.Every, Hold: true} }

// takeoverMax is the longest time until another node is the primary after any of these faults,
// with the default timings, on a busy machine.
const takeoverMax = 30 * time.Second

// TestLogDisk breaks the disk under the log. An operator only has to make
// the disk work again. The agents that have ended must be started again, which a
// service manager does.
func TestLogDisk(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	f.think = busy
	disks := f.faultDisks(t, "log")
	for _, c := range []diskFault{
		{name: "PrimaryHangs", fault: hangs(), says: "its disk has not answered for"},
		{name: "FollowerHangs", follower: true, fault: hangs(), says: "its disk has not answered for"},
		{name: "PrimarySyncFails", fault: eio(faultmount.Sync), ends: true, says: "input/output error"},
		{name: "PrimaryWriteFails", fault: eio(faultmount.Write), ends: true, says: "input/output error"},
		{name: "FollowerSyncFails", follower: true, fault: eio(faultmount.Sync), ends: true, says: "input/output error"},
		{name: "PrimaryReadOnly", fault: readOnly(), ends: true, says: "read-only file system"},
	} {
		f.scenario(t, c.name, func(t *testing.T, ctx context.Context) { f.breakDisk(t, ctx, disks, c) })
	}
}

// TestMysqlDisk breaks the disk under mysqld. The agent goes on, lets another node
// take over, and starts mysqld again as soon as the disk works.
func TestMysqlDisk(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	f.think = busy
	disks := f.faultDisks(t, "mysql")
	for _, c := range []diskFault{
		{name: "PrimaryFull", fault: full(), says: "no space left on device"},
		{name: "PrimaryFails", fault: eio(faultmount.Write | faultmount.Sync), says: "input/output error"},
		{name: "PrimaryReadOnly", fault: readOnly(), says: "read-only file system"},
		{name: "PrimaryHangs", fault: hangs(), says: "mysqld's disk has not answered for"},
		{name: "FollowerHangs", follower: true, fault: hangs(), says: "mysqld's disk has not answered for"},
		{name: "FollowerFull", follower: true, fault: full(), says: "mysqld's disk is full"},
	} {
		f.scenario(t, c.name, func(t *testing.T, ctx context.Context) { f.breakDisk(t, ctx, disks, c) })
	}
}

// breakDisk breaks one disk. The other nodes go on without its node.
func (f *fixture) breakDisk(t *testing.T, ctx context.Context, disks []*faultmount.Mount, c diskFault) {
	primary := f.heal(t, ctx)
	before := f.dataIdentity(t, ctx)
	victim := primary
	if c.follower {
		victim = f.others(primary)[0]
	}
	agent, term := f.AgentPID(victim), f.status(t, ctx, primary).Term
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 200)
	l.ResetGap()
	f.setFaults(t, disks[victim], c.fault)
	next := primary
	if !c.follower {
		next = f.takenOver(t, ctx, victim)
	}
	l.awaitAcks(t, ctx, 200)
	if c.ends {
		f.awaitExit(t, ctx, victim, c.says)
		f.mustNotStart(t, ctx, victim)
	} else {
		f.awaitSaid(t, ctx, next, victim, c.says)
	}
	l.awaitAcks(t, ctx, 200)
	gap := l.Gap()
	l.rest()
	if st := f.status(t, ctx, next); c.follower && (st.Term != term || st.Role != status.RolePrimary) {
		t.Errorf("a follower's disk broke, and %s is %s in term %d: it was the primary of term %d", f.Name(next), st.Role, st.Term, term)
	}
	f.setFaults(t, disks[victim])
	f.heal(t, ctx)
	// A mysqld that has waited for space looks again once a minute.
	if err := f.WaitCaughtUp(ctx, victim, f.status(t, ctx, next).LogCommit); err != nil {
		t.Fatal(err)
	}
	if !c.ends && f.AgentPID(victim) != agent {
		t.Error("the agent was started again")
	}
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	f.check(t, ctx)
	f.mustNotBeRebuilt(t, ctx, before)
	t.Logf("write gap %v", gap.Round(time.Millisecond))
}

// takenOver waits until another node is the primary, and not too long.
func (f *fixture) takenOver(t *testing.T, ctx context.Context, from int) (next int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, takeoverMax)
	defer cancel()
	next, err := f.WaitPrimary(ctx, from)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func (f *fixture) setFaults(t *testing.T, d *faultmount.Mount, faults ...faultmount.Fault) {
	t.Helper()
	if err := d.SetFaults(faults...); err != nil {
		t.Fatal(err)
	}
}

// awaitExit waits until node i's agent has ended by itself, and the end of its log contains the
// text says.
func (f *fixture) awaitExit(t *testing.T, ctx context.Context, i int, says string) {
	t.Helper()
	if err := devcluster.Poll(ctx, "the agent of "+f.Name(i)+" has ended", func(context.Context) (bool, string, error) {
		return f.AgentPID(i) == 0, "it runs", nil
	}); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(f.Logs(i))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, says) {
		t.Errorf("the last line of the agent of %s says %q, want %q", f.Name(i), last, says)
	}
}

// mustNotStart starts node i's agent while its disk is still broken: it ends again.
func (f *fixture) mustNotStart(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := devcluster.Poll(ctx, "the agent of "+f.Name(i)+" has ended again", func(context.Context) (bool, string, error) {
		return f.AgentPID(i) == 0, "it runs", nil
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitSaid waits until node on says why node of is not well.
func (f *fixture) awaitSaid(t *testing.T, ctx context.Context, on, of int, says string) {
	t.Helper()
	if err := devcluster.Poll(ctx, f.Name(on)+" says of "+f.Name(of)+": "+says, func(ctx context.Context) (bool, string, error) {
		st, err := f.Status(ctx, on)
		if err != nil {
			return false, err.Error(), nil
		}
		for _, n := range st.Nodes {
			if n.Name == f.Name(of) {
				why := fmt.Sprintf("%s: %s, log %s: %s", n.Role, n.Reason, n.LogState, n.LogDetail)
				return strings.Contains(n.Reason, says) || strings.Contains(n.LogDetail, says), why, nil
			}
		}
		return false, "it does not know it", nil
	}); err != nil {
		t.Fatal(err)
	}
}
