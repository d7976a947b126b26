package e2e

import (
	"flag"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// besideEachOther is how many tests run at once, where -parallel says nothing: each has three servers, waits for most of its
// time, and eight clusters use all of two cores.
const besideEachOther = 8

// longest are the tests that take the longest time, in this order. They begin before others, so that none of them is
// left alone at the end.
var longest = []string{"TestMysqlDisk", "TestPort", "TestMySQLRouter", "TestKeys", "TestFollow", "TestXA", "TestKill",
	"TestStoppedApplier", "TestUpgradeMySQL", "TestOperate", "TestLogDisk", "TestPartition", "TestDDL", "TestLongTransaction",
	"TestBackup", "TestAttack", "TestRepair", "TestClock", "TestSource", "TestAdoptGroup", "TestAdopt", "TestNoMajority",
	"TestUpgrade", "TestReadPort", "TestVariables", "TestTimings", "TestDisk", "TestDidCommit", "TestLargeInterrupted",
	"TestLogger", "TestAttackPlain", "TestAdoptSemiSync", "TestSites", "TestUpgradeLogger", "TestRecoverApart", "TestHistory",
	"TestHAProxy", "TestRecover", "TestRecoverTakenBack", "TestMembersRebuild", "TestPolicy", "TestXAOnReplica",
	"TestGrownFromOne", "TestControl", "TestReaders", "TestDivergence", "TestRefused", "TestMembersGrow", "TestLargeFull",
	"TestMembersClone", "TestMembersWrongAddress", "TestUnprivileged", "TestFreeze", "TestPowerLoss", "TestOutage",
	"TestClientTLS", "TestForm"}

// turns are whose turn it is of the tests that run beside others.
var turns queue

type queue struct {
	mu              sync.Mutex
	runMax, running int
	waiting         []turn
}

type turn struct {
	place int // in longest, else after it
	begin chan struct{}
}

// beside lets a test run beside others, as soon as it is its turn. How long a test takes, by go test -v, includes its wait for that;
// what it says of the scenarios does not.
func beside(t *testing.T) {
	t.Helper()
	t.Parallel()
	place := slices.Index(longest, t.Name())
	if place < 0 {
		place = len(longest)
	}
	mine := turn{place: place, begin: make(chan struct{})}
	turns.change(func() { turns.waiting = append(turns.waiting, mine) })
	<-mine.begin
	t.Cleanup(func() { turns.change(func() { turns.running-- }) }) // when its cluster has ended
}

// change does something to the queue, and lets those begin whose turn it is.
func (q *queue) change(do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	do()
	slices.SortStableFunc(q.waiting, func(a, b turn) int { return a.place - b.place })
	for len(q.waiting) > 0 && q.running < q.runMax {
		close(q.waiting[0].begin)
		q.waiting = q.waiting[1:]
		q.running++
	}
}

// open takes the place of -parallel: all tests come to the queue, as soon as those that run alone have ended.
func (q *queue) open() (err error) {
	flag.Parse()
	q.runMax = besideEachOther
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "test.parallel" {
			q.runMax, err = strconv.Atoi(f.Value.String())
		}
	})
	if err != nil {
		return err
	}
	return flag.Set("test.parallel", "1000")
}
