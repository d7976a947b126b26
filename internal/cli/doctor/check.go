package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
)

// syncSlow is the median of fdatasync from which on every commit is felt to be slow. A disk
// with a cache that survives a power failure takes less than a tenth of that.
const syncSlow = 10 * time.Millisecond

// roundTripsMin is how many round trips an election timeout should have room for (etcd's
// tuning guide asks for ten as well): a vote takes one, a lost packet another three.
const roundTripsMin = 10

// quantile returns the value that q of the sorted samples do not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// shown rounds a measure for people: three digits are more than it is worth.
func shown(d time.Duration) string {
	unit := time.Microsecond
	switch {
	case d >= 10*time.Millisecond:
		unit = time.Millisecond
	case d >= time.Millisecond:
		unit = 100 * time.Microsecond
	case d >= 100*time.Microsecond:
		unit = 10 * time.Microsecond
	}
	return units.Duration(d.Round(unit))
}

// checkSync looks at what fdatasync takes on one disk.
func checkSync(subject string, samples []time.Duration, raft config.Raft) cluster.Check {
	sorted := slices.Sorted(slices.Values(samples))
	p50, p99 := quantile(sorted, 0.5), quantile(sorted, 0.99)
	c := cluster.Check{Subject: subject, State: cluster.CheckOK, Found: fmt.Sprintf("fdatasync p50 %s, p99 %s (%d of 4KiB)", shown(p50), shown(p99), len(samples)),
		Figures: map[string]float64{"fdatasync_p50_seconds": p50.Seconds(), "fdatasync_p99_seconds": p99.Seconds()}}
	switch {
	case p99 >= raft.ElectionTimeout/2:
		c.State = cluster.CheckFail
		c.Do = fmt.Sprintf("take a faster disk: such waits come near raft.election_timeout (%s), and leaders would be deposed", units.Duration(raft.ElectionTimeout))
	case p99 >= raft.Heartbeat:
		c.State = cluster.CheckWarn
		c.Do = fmt.Sprintf("look what else writes there: some waits are longer than raft.heartbeat (%s)", units.Duration(raft.Heartbeat))
	case p50 >= syncSlow:
		c.State = cluster.CheckWarn
		c.Do = "take a disk whose write cache survives a power failure: each commit waits so long"
	}
	return c
}

// checkFileSystem looks at a file system by the number that statfs(2) gives.
func checkFileSystem(subject string, magic int64) cluster.Check {
	const persistent = "put data_dir on a file system of a disk (ext4, XFS)"
	odd := map[int64][2]string{
		0x01021994: {"tmpfs", "it is gone after a restart of the host, and the node is copied again each time: " + persistent},
		0x858458f6: {"ramfs", "it is gone after a restart of the host, and the node is copied again each time: " + persistent},
		0x794c7630: {"overlay", "it is gone with the container: mount a volume at data_dir"},
		0x6969:     {"NFS", "a network's pause stops the log, and locks may fail: " + persistent},
		0xff534d42: {"CIFS", "a network's pause stops the log, and locks may fail: " + persistent},
		0xfe534d42: {"SMB2", "a network's pause stops the log, and locks may fail: " + persistent},
		0x65735546: {"FUSE", "whether an fsync reaches a disk depends on the program behind it: " + persistent},
	}
	usual := map[int64]string{0xef53: "ext4", 0x58465342: "XFS", 0x9123683e: "Btrfs", 0x2fc12fc1: "ZFS", 0xf2f52010: "F2FS", 0xca451a4e: "bcachefs"}
	if o, is := odd[magic]; is {
		return cluster.Check{Subject: subject, State: cluster.CheckWarn, Found: o[0], Do: o[1]}
	}
	name := usual[magic]
	if name == "" {
		name = fmt.Sprintf("file system 0x%x", magic)
	}
	return cluster.Check{Subject: subject, State: cluster.CheckOK, Found: name}
}

// checkSpace looks at how much is free where the log may still grow to its retention.
func checkSpace(subject string, free, total, logHas, retention int64) cluster.Check {
	c := cluster.Check{Subject: subject, State: cluster.CheckOK, Found: fmt.Sprintf("%s of %s free", units.Size(free), units.Size(total)),
		Figures: map[string]float64{"free_bytes": float64(free), "total_bytes": float64(total)}}
	const spaceMin = 1 << 30 // some segments, and a redo log that grows
	switch grows := max(0, retention-logHas); {
	case free < spaceMin:
		c.State, c.Do = cluster.CheckFail, "make room: a log that cannot grow stops writes on this node"
	case free < grows:
		c.State = cluster.CheckWarn
		c.Do = fmt.Sprintf("make room, or lower log.retention_size: the log may grow by %s", units.Size(grows))
	}
	return c
}

// commitLatency is what a commit takes at least if this node leads (docs/architecture/commit.md,
// "What a commit takes"): the fastest followers that make a majority with the leader have to
// answer, and each writes before it does. Behind a write that is under way it waits for that, too.
func commitLatency(sync time.Duration, rounds []time.Duration, voters int) (one, behind time.Duration, known bool) {
	need := voters / 2 // beside the leader
	if need == 0 {
		return sync, 2 * sync, sync > 0
	}
	if sync <= 0 || len(rounds) < need {
		return 0, 0, false
	}
	sorted := slices.Sorted(slices.Values(rounds))
	one = sorted[need-1] + sync
	return one, one + sync, true
}

// checkRound looks at the round trip to a peer.
func checkRound(c cluster.Check, round time.Duration, raft config.Raft) cluster.Check {
	if c.State == cluster.CheckOK && round*roundTripsMin > raft.ElectionTimeout {
		c.State = cluster.CheckWarn
		c.Do = fmt.Sprintf("raise raft.election_timeout on every node to %s at least: ten round trips", units.Duration((round * roundTripsMin).Round(100*time.Millisecond)))
	}
	return c
}

// checkMajority fails where a majority of the voters cannot be reached.
func checkMajority(answered map[cluster.NodeID]bool, voters []cluster.NodeID) (cluster.Check, bool) {
	if len(voters) < 2 || cluster.Majority(voters, nil, func(id cluster.NodeID) bool { return answered[id] }) {
		return cluster.Check{}, false
	}
	return cluster.Check{Subject: "majority", State: cluster.CheckFail, Found: fmt.Sprintf("fewer than %d of %d hosts with a vote answer from here", len(voters)/2+1, len(voters)),
		Do: "look at the network and the firewalls: without a majority nothing is committed"}, true
}

// checkClock looks at what adjtimex(2) says, and a step seen meanwhile.
func checkClock(synced bool, step time.Duration) []cluster.Check {
	sync := cluster.Check{Subject: "clock", State: cluster.CheckOK, Found: "kept by NTP, as the kernel says"}
	if !synced {
		sync.State, sync.Found = cluster.CheckWarn, "the kernel does not know it to be synchronised"
		sync.Do = "run chrony or systemd-timesyncd: nothing is lost by a wrong clock, but times in history and logs do not fit together"
	}
	const stepMin = 50 * time.Millisecond
	if step > -stepMin && step < stepMin {
		return []cluster.Check{sync}
	}
	return []cluster.Check{sync, {Subject: "clock steps", State: cluster.CheckWarn, Found: "it was set by " + shown(max(step, -step)) + " while this ran",
		Do: "find who sets it (two NTP clients, the hypervisor): a step ends the kernel's fence of mysqld's port, until the lease is renewed"}}
}

// checkFiles looks at how many files a process may open.
func checkFiles(whose string, soft, hard uint64) cluster.Check {
	const filesWanted = 65536 // as packaging/quorate.service sets it
	c := cluster.Check{Subject: "open files", State: cluster.CheckOK, Found: fmt.Sprintf("%s may open %d", whose, soft)}
	if max(soft, hard) < filesWanted {
		c.State = cluster.CheckWarn
		c.Do = fmt.Sprintf("set LimitNOFILE=%d in the unit: connections and tables need descriptors", filesWanted)
	}
	return c
}

// checkHugePages looks at /sys/kernel/mm/transparent_hugepage: enabled and defrag.
func checkHugePages(enabled, defrag string) (cluster.Check, bool) {
	if !strings.Contains(enabled, "[always]") || !strings.Contains(defrag, "[always]") {
		return cluster.Check{}, false
	}
	return cluster.Check{Subject: "huge pages", State: cluster.CheckWarn, Found: "transparent, always, and made while a process waits (defrag)",
		Do: "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag: an allocation may take as long as a heartbeat"}, true
}

// checkSwap looks at how ready the kernel is to swap what it has no need to.
func checkSwap(swapBytes int64, swappiness int) (cluster.Check, bool) {
	const swappinessMax = 10
	if swapBytes == 0 || swappiness <= swappinessMax {
		return cluster.Check{}, false
	}
	return cluster.Check{Subject: "swap", State: cluster.CheckWarn, Found: fmt.Sprintf("%s, and vm.swappiness is %d", units.Size(swapBytes), swappiness),
		Do: "sysctl vm.swappiness=1: a buffer pool or an agent that was swapped out costs seconds"}, true
}
