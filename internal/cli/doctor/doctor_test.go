package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/install"
)

const ms = time.Millisecond

// threeNodes is the configuration of node a of three.
func threeNodes() config.Config {
	c := config.Default()
	c.Cluster, c.Node = "shop", "a"
	for i, name := range []string{"a", "b", "c"} {
		c.Members = append(c.Members, config.Member{Name: name, Peer: fmt.Sprintf("127.0.0.1:%d", 1+i), Kind: cluster.KindFull, Weight: 5})
	}
	return c
}

func TestCheckSync(t *testing.T) {
	raft := config.Default().Raft // a heartbeat each 100 ms, a timeout of 1 s
	steady := func(d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, 100) }
	withTail := func(d, tail time.Duration) []time.Duration { return append(steady(d), tail, tail) }
	for _, c := range []struct {
		name    string
		samples []time.Duration
		want    cluster.CheckState
		found   string
	}{
		{"fast", steady(347 * time.Microsecond), cluster.CheckOK, "p50 350µs, p99 350µs"},
		{"fast, with a pause", withTail(ms, 99*ms), cluster.CheckOK, "p50 1ms, p99 99ms"},
		{"a pause longer than a heartbeat", withTail(ms, 100*ms), cluster.CheckWarn, "p99 100ms"},
		{"a slow disk", steady(10 * ms), cluster.CheckWarn, "p50 10ms"},
		{"leaders would be deposed", withTail(ms, 500*ms), cluster.CheckFail, "p99 500ms"},
	} {
		got := checkSync("disk", c.samples, raft)
		if got.State != c.want || !strings.Contains(got.Found, c.found) || (got.Do == "") != (c.want == cluster.CheckOK) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestCommitLatency: only the fastest followers that make a majority with the leader count.
func TestCommitLatency(t *testing.T) {
	for _, c := range []struct {
		sync        time.Duration
		rounds      []time.Duration
		voters      int
		one, behind time.Duration
		known       bool
		name        string
	}{
		{ms, []time.Duration{20 * ms, 2 * ms}, 3, 3 * ms, 4 * ms, true, "three nodes, one of them far"},
		{ms, []time.Duration{40 * ms, 2 * ms, 20 * ms, 3 * ms}, 5, 4 * ms, 5 * ms, true, "five nodes"},
		{ms, nil, 1, ms, 2 * ms, true, "one node alone"},
		{ms, []time.Duration{2 * ms}, 4, 0, 0, false, "no majority answers"},
		{0, []time.Duration{2 * ms, ms}, 3, 0, 0, false, "the disk was not measured"},
	} {
		one, behind, known := commitLatency(c.sync, c.rounds, c.voters)
		if one != c.one || behind != c.behind || known != c.known {
			t.Errorf("%s: %v, %v, %t", c.name, one, behind, known)
		}
	}
}

func TestChecks(t *testing.T) {
	const gib = 1 << 30
	first := func(c cluster.Check, bad bool) cluster.Check {
		if !bad {
			c = cluster.Check{State: cluster.CheckOK}
		}
		return c
	}
	ids := []cluster.NodeID{1, 2, 3}
	raft := config.Default().Raft
	for name, c := range map[string]struct {
		got   cluster.Check
		state cluster.CheckState
		text  string
	}{
		"ext4":            {checkFileSystem("fs", 0xef53), cluster.CheckOK, "ext4"},
		"unknown":         {checkFileSystem("fs", 0x1234), cluster.CheckOK, "0x1234"},
		"tmpfs":           {checkFileSystem("fs", 0x01021994), cluster.CheckWarn, "copied again"},
		"overlay":         {checkFileSystem("fs", 0x794c7630), cluster.CheckWarn, "mount a volume"},
		"NFS":             {checkFileSystem("fs", 0x6969), cluster.CheckWarn, "network's pause"},
		"room":            {checkSpace("s", 17*gib, 100*gib, 0, 16*gib), cluster.CheckOK, "17GiB of 100GiB free"},
		"room, it grew":   {checkSpace("s", 2*gib, 100*gib, 15*gib, 16*gib), cluster.CheckOK, "2GiB"},
		"little room":     {checkSpace("s", 15*gib, 100*gib, 0, 16*gib), cluster.CheckWarn, "may grow by 16GiB"},
		"full":            {checkSpace("s", gib-1, 100*gib, 0, 0), cluster.CheckFail, "stops writes"},
		"near":            {checkRound(cluster.Check{State: cluster.CheckOK}, 100*ms, raft), cluster.CheckOK, ""},
		"far":             {checkRound(cluster.Check{State: cluster.CheckOK}, 101*ms, raft), cluster.CheckWarn, "ten round trips"},
		"majority":        {first(checkMajority(map[cluster.NodeID]bool{1: true, 3: true}, ids)), cluster.CheckOK, ""},
		"no majority":     {first(checkMajority(map[cluster.NodeID]bool{1: true}, ids)), cluster.CheckFail, "fewer than 2 of 3"},
		"alone":           {first(checkMajority(map[cluster.NodeID]bool{1: true}, ids[:1])), cluster.CheckOK, ""},
		"files":           {checkFiles("mysqld", 65536, 65536), cluster.CheckOK, "mysqld may open 65536"},
		"few files":       {checkFiles("mysqld", 1024, 65535), cluster.CheckWarn, "LimitNOFILE=65536"},
		"huge pages":      {first(checkHugePages("[always] madvise never", "[always] defer madvise never")), cluster.CheckWarn, "madvise"},
		"no huge pages":   {first(checkHugePages("[always] madvise never", "always defer [madvise] never")), cluster.CheckOK, ""},
		"swap":            {first(checkSwap(gib, 60)), cluster.CheckWarn, "vm.swappiness is 60"},
		"swap, reluctant": {first(checkSwap(gib, 1)), cluster.CheckOK, ""},
		"no swap":         {first(checkSwap(0, 60)), cluster.CheckOK, ""},
		"clock":           {checkClock(true, 0)[0], cluster.CheckOK, "NTP"},
		"clock alone":     {checkClock(false, 0)[0], cluster.CheckWarn, "chrony"},
		"clock set":       {checkClock(true, -70*ms)[1], cluster.CheckWarn, "set by 70ms"},
	} {
		if text := c.got.Found + c.got.Do; c.got.State != c.state || !strings.Contains(text, c.text) {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
	if got := checkClock(true, 49*ms); len(got) != 1 {
		t.Errorf("a clock that is only slewed: %+v", got)
	}
	if got := cluster.Worst([]cluster.Check{{State: cluster.CheckUnknown}, {State: cluster.CheckWarn}, {State: cluster.CheckOK}}); got != cluster.CheckWarn {
		t.Errorf("the worst is %s", got)
	}
	if got := cluster.Worst([]cluster.Check{{State: cluster.CheckFail}, {State: cluster.CheckWarn}}); got != cluster.CheckFail {
		t.Errorf("the worst is %s", got)
	}
}

// TestMeasureSync: samples are taken, and nothing is left in the directory. A directory that cannot be
// written is an error of its own, not a disk that hangs.
func TestMeasureSync(t *testing.T) {
	dir := t.TempDir()
	samples, err := measureSync(t.Context(), dir, time.Minute)
	if err != nil || len(samples) != samplesMax || slices.Min(samples) <= 0 {
		t.Errorf("%d samples, %v", len(samples), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if samples, err := measureSync(ended, dir, time.Minute); len(samples) > 1 && err == nil {
		t.Errorf("it went on for %d samples after it was ended", len(samples))
	}
	if _, err := measureSync(t.Context(), filepath.Join(dir, "none"), time.Minute); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestPlaces: for a directory that does not exist yet, the nearest directory above it counts.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	h := Host{Config: threeNodes()}
	h.Config.DataDir = filepath.Join(dir, "x", "y")
	places, err := h.places()
	if err != nil || len(places) != 1 || places[0].dir != dir || places[0].name != "log and data" {
		t.Errorf("%+v, %v", places, err)
	}
	h.Config.Members[0].Kind = cluster.KindLogger
	if places, _ := h.places(); len(places) != 1 || places[0].name != "log" {
		t.Errorf("a logger: %+v", places)
	}
}

// TestRoundTrip: a host that refuses the connection has answered, too.
func TestRoundTrip(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if took, err := roundTrip(t.Context(), at); took <= 0 || err != nil {
		t.Errorf("a listener: %v, %v", took, err)
	}
	_ = l.Close()
	if took, err := roundTrip(t.Context(), at); took <= 0 || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v, %v", took, err)
	}
	if took, err := roundTrip(t.Context(), "no address"); took != 0 || err == nil {
		t.Errorf("no address: %v, %v", took, err)
	}
}

// TestLoopback: an agent that listens where other hosts do not reach it is a warning.
func TestLoopback(t *testing.T) {
	h := Host{Config: threeNodes()}
	if c := h.loopback(t.Context()); c != nil {
		t.Errorf("all on one host: %v", c)
	}
	h.Config.Members[1].Peer = "203.0.113.2:7400"
	if c := h.loopback(t.Context()); len(c) != 1 || c[0].State != cluster.CheckWarn || !strings.Contains(c[0].Found, "203.0.113.2:7400 is on another host") {
		t.Errorf("b is elsewhere: %v", c)
	}
}

// TestCheckPeer: what the agent knows of another node counts more than that its port answers.
func TestCheckPeer(t *testing.T) {
	key := func(n status.Node) *status.Node { n.Key = "q1:x"; return &n }
	h := Host{Config: threeNodes(), Agent: &status.Cluster{Self: "a", Nodes: []status.Node{{Name: "a", Key: "q1:y", PlainPeers: []string{"plain"}}}}}
	for _, c := range []struct {
		name   string
		status *status.Node
		round  time.Duration
		err    error
		state  cluster.CheckState
		found  string
	}{
		{"before", nil, ms, nil, cluster.CheckOK, "something listens"},
		{"silent", nil, 0, os.ErrDeadlineExceeded, cluster.CheckWarn, "does not answer"},
		{"no agent there", nil, ms, syscall.ECONNREFUSED, cluster.CheckWarn, "no agent listens"},
		{"heard", key(status.Node{Name: "b", Reachable: true}), ms, nil, cluster.CheckOK, "1ms at h:1, heard of, TLS, its key fits"},
		{"plain", key(status.Node{Name: "plain", Reachable: true}), ms, nil, cluster.CheckOK, "without TLS"},
		{"not heard", key(status.Node{Name: "b"}), ms, nil, cluster.CheckWarn, "does not hear of it"},
		{"refused", key(status.Node{Name: "b", Refusal: &status.Refusal{By: "b", Of: "a", Why: "its key differs"}}), ms, nil, cluster.CheckFail, "its key differs"},
		{"one direction", key(status.Node{Name: "b", Reachable: true, Unreached: "a cannot reach it"}), ms, nil, cluster.CheckFail, "a cannot reach it"},
		{"far", key(status.Node{Name: "b", Reachable: true}), 200 * ms, nil, cluster.CheckWarn, "200ms"},
	} {
		got := h.checkPeer(peer{name: "b", at: "h:1", votes: true, status: c.status}, c.round, c.err)
		if got.State != c.state || !strings.Contains(got.Found, c.found) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestHolder finds who listens on a port by the files of /proc.
func TestHolder(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	write("proc/net/tcp", head+"   0: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n"+
		"   1: 0100007F:192E 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0\n")
	write("proc/net/tcp6", head)
	write("proc/77/comm", "mysqld\n")
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "proc/77/fd"), 0o755), os.Symlink("socket:[4711]", filepath.Join(root, "proc/77/fd/5"))); err != nil {
		t.Fatal(err)
	}
	h := Host{Root: root}
	for port, want := range map[string]string{"3306": "mysqld, pid 77", "6446": "another account's program (root sees which)"} {
		if got := h.holder(port); got != want {
			t.Errorf("port %s: %q, want %q", port, got, want)
		}
	}
}

// TestPorts: a port that another program has fails, unless that is this node's own agent.
func TestPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := Host{Config: threeNodes()}
	h.Config.Members[0].Kind = cluster.KindLogger
	h.Config.Members[0].Peer, h.Config.Router.ReadWrite, h.Config.API.Listen = "127.0.0.1:0", l.Addr().String(), "127.0.0.1:0"
	got := h.ports()
	if len(got) != 1 || got[0].State != cluster.CheckFail || got[0].Subject != "port of router.read_write" || !strings.Contains(got[0].Found, fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("%+v", got)
	}
	for _, h := range []Host{{Config: h.Config, Silent: &cluster.Check{State: cluster.CheckFail}}, {Config: h.Config, Agent: &status.Cluster{}}} {
		if got := h.ports(); len(got) != 1 || got[0].State != cluster.CheckOK {
			t.Errorf("of the agent: %+v", got)
		}
	}
	h.Agent = &status.Cluster{}
	h.Config.API.Listen = "192.0.2.1:1"
	if got := h.ports(); got[0].State != cluster.CheckFail || !strings.Contains(got[0].Do, "give this host that address") {
		t.Errorf("another host's address: %+v", got)
	}
}

// TestConfinement reads what the kernel and AppArmor say.
func TestConfinement(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	h := Host{Config: threeNodes(), Root: root}
	states := func() (all []string) {
		for _, c := range h.confinement() {
			all = append(all, c.Subject+" "+string(c.State))
		}
		return all
	}
	steps := []struct {
		path, text string
		want       []string
	}{
		{"sys/fs/selinux/enforce", "0", nil},
		{"sys/module/apparmor/parameters/enabled", "Y\n", nil},
		{"etc/apparmor.d/usr.sbin.mysqld", "/var/lib/mysql/ r,", []string{"AppArmor warn"}},
		{"etc/apparmor.d/local/usr.sbin.mysqld", "/var/lib/quorate/** rwk,", []string{"AppArmor ok"}},
		{"sys/fs/selinux/enforce", "1", []string{"SELinux warn", "AppArmor ok"}},
		{"etc/apparmor.d/disable/usr.sbin.mysqld", "", []string{"SELinux warn"}},
	}
	for _, s := range steps {
		write(s.path, s.text)
		if diff := cmp.Diff(s.want, states()); diff != "" {
			t.Errorf("with %s (-want +got):\n%s", s.path, diff)
		}
	}
	h.Agent = &status.Cluster{Self: "a", Nodes: []status.Node{{Name: "a", Mysqld: status.MysqldRunning}}}
	if got := states(); got != nil {
		t.Errorf("mysqld runs: %v", got)
	}
}

// TestProgramsCapabilities: doctor sees a mysqld to which somebody gave capabilities.
func TestProgramsCapabilities(t *testing.T) {
	in := &install.Installation{Mysqld: filepath.Join(t.TempDir(), "mysqld")}
	if err := os.WriteFile(in.Mysqld, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	h := Host{Config: threeNodes(), Discover: func() (*install.Installation, error) { return in, nil }}
	warns := func() bool {
		return slices.ContainsFunc(h.mysql(), func(c cluster.Check) bool {
			return c.State == cluster.CheckWarn && strings.Contains(c.Do, "setcap -r "+in.Mysqld)
		})
	}
	if warns() {
		t.Error("it warns of a program without capabilities")
	}
	// struct vfs_cap_data of linux/capability.h: revision 2, effective; CAP_SYS_NICE is permitted.
	niceCap := []byte{1, 0, 0, 2, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if err := unix.Setxattr(in.Mysqld, "security.capability", niceCap, 0); err != nil {
		t.Skipf("this account may give no program capabilities: %v", err)
	}
	if !warns() {
		t.Errorf("it does not warn: %+v", h.mysql())
	}
}

// TestDifferentZones: doctor passes on what the agent says of the hosts' time zones, and of the names of tables.
func TestDifferentZones(t *testing.T) {
	zone := func(offset string) *status.TimeZone {
		return &status.TimeZone{Global: "SYSTEM", January: offset, July: offset, Rules: offset}
	}
	h := Host{Config: threeNodes(), Discover: func() (*install.Installation, error) { return &install.Installation{}, nil },
		Agent: &status.Cluster{Self: "a", Nodes: []status.Node{{Name: "a", TimeZone: zone("+00:00"), LowerCaseTableNames: new(0)}, {Name: "b", TimeZone: zone("+01:00"), LowerCaseTableNames: new(1)}}}}
	if !slices.ContainsFunc(h.mysql(), func(c cluster.Check) bool {
		return c.State == cluster.CheckWarn && strings.Contains(c.Found, "(a: +00:00; b: +01:00)") && c.Do == status.TimeZonesRemedy
	}) {
		t.Errorf("it does not warn: %+v", h.mysql())
	}
	if !slices.ContainsFunc(h.mysql(), func(c cluster.Check) bool {
		return c.State == cluster.CheckWarn && strings.Contains(c.Found, "(a: 0; b: 1)") && c.Do == status.TableNamesRemedy
	}) {
		t.Errorf("it does not warn of the table names: %+v", h.mysql())
	}
}

func TestFilesOf(t *testing.T) {
	soft, hard, ok := filesOf("Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 524288               files\n")
	if soft != 1024 || hard != 524288 || !ok {
		t.Errorf("%d, %d, %t", soft, hard, ok)
	}
	if _, _, ok := filesOf("Max open files\n"); ok {
		t.Error("a line without figures was read")
	}
}
