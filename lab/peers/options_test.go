package peers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/mysql/install"
)

func TestOptionsAreJudged(t *testing.T) {
	installed := Installations{MySQL: &install.Installation{}, MariaDB: "/x", MySQLRouter: "/x", HAProxy: "/x", Quorate: "/x"}
	for _, tc := range []struct {
		name string
		o    Options
		says string // "" = fine
	}{
		{"defaults", Options{System: Async}, ""},
		{"single thread", Options{System: Standalone, Workers: 1}, ""},
		{"two acks", Options{System: SemiSync, Acks: 2}, ""},
		{"writers everywhere", Options{System: Galera, Writers: WritersAll}, ""},
		{"variants", Options{System: Quorate, Loggers: 1, Learners: 2}, ""},
		{"typo", Options{System: "galerra"}, `no system "galerra"; there are standalone, async,`},
		{"too many acks", Options{System: SemiSync, Acks: 3}, "acks 3; it can be 1 to 2"},
		{"acks of async", Options{System: Async, Acks: 2}, "system async has no option acks"},
		{"loggers of mgr", Options{System: MGR, Loggers: 1}, "system mgr has no option loggers"},
		{"two loggers", Options{System: Quorate, Loggers: 2}, "loggers 2; it can be 0 to 1"},
		{"writers of mgr", Options{System: MGR, Writers: WritersAll}, "writers all is for galera and mgr-multi"},
		{"no such writers", Options{System: Galera, Writers: "some"}, `writers "some"; it can be one or all`},
		{"leader of galera", Options{System: Galera, PaxosSingleLeader: true}, "system galera has no option paxos-single-leader"},
		{"site-majority", Options{System: Quorate, Durability: "site-majority"}, ""},
		{"durability of mgr", Options{System: MGR, Durability: "site-majority"}, "system mgr has no option durability"},
		{"no such durability", Options{System: Quorate, Durability: "all"}, `durability "all"; it can be site-majority`},
		{"two sites", Options{System: Quorate, Sites: 2}, ""},
		{"three sites", Options{System: Quorate, Sites: 3}, "sites 3; it can be 1 to 2"},
		{"two sites with a logger", Options{System: Quorate, Sites: 2, Loggers: 1}, "sites 2 is without durability, clients, loggers"},
		{"control", Options{System: Standalone, NoSync: true}, ""},
		{"control of quorate", Options{System: Quorate, NoSync: true}, "system quorate has no option no-sync"},
		{"one writer of mgr-multi", Options{System: MGRMulti, Writers: WritersOne}, ""},
		{"relay log", Options{System: SemiSync, RelayLogRecovery: "off", SyncRelayLog: true}, ""},
		{"relay log of mgr", Options{System: MGR, RelayLogRecovery: "off"}, "system mgr has no option relay-log-recovery"},
		{"relay log typo", Options{System: Async, RelayLogRecovery: "no"}, `relay-log-recovery "no"; it can be on or off`},
		{"relaxed quorate", Options{System: Quorate, ReplicaDurability: relaxed}, "system quorate has no option replica-durability"},
		{"durability typo", Options{System: Async, ReplicaDurability: "lax"}, `replica-durability "lax"; it can be relaxed`},
		{"expel", Options{System: MGR, ExpelTimeout: new(3601)}, "expel-timeout 3601; it can be 0 to 3600"},
		{"instruments", Options{System: Async, Instruments: "least"}, ""},
		{"instruments typo", Options{System: Async, Instruments: "none"}, `instruments "none"; it can be mysql or least`},
		{"instruments of galera", Options{System: Galera, Instruments: "least"}, "system galera has no option instruments"},
		{"election of async", Options{System: Async, ElectUpdated: true}, "system async has no option elect-updated"},
		{"clients", Options{System: Quorate, Clients: "port"}, ""},
		{"clients typo", Options{System: Quorate, Clients: "direct"}, `clients "direct"; it can be kernel, port, replicas, split or haproxy`},
		{"router between", Options{System: Quorate, Clients: "split"}, ""},
		{"haproxy between", Options{System: Quorate, Clients: "haproxy"}, ""},
		{"clients of mgr", Options{System: MGR, Clients: "port"}, "system mgr has no option clients"},
		{"size limit", Options{System: MGR, SizeLimit: "1"}, `size-limit "1"; it can be default`},
		{"suspect", Options{System: Galera, Suspect: time.Minute}, "suspect 1m0s; it can be 1s to 10s"},
		{"suspect of mgr", Options{System: MGR, Suspect: time.Second}, "system mgr has no option suspect"},
		{"workers", Options{System: Async, Workers: 65}, "workers 65; it can be 1 to 64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.Install, tc.o.Network, tc.o.Dir = installed, NewLoopback(1), t.TempDir()
			err := tc.o.normalize()
			switch {
			case tc.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("says %v, want %q", err, tc.says)
			}
		})
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	mysql := Installations{MySQL: &install.Installation{}}
	for _, tc := range []struct {
		system string
		in     Installations
		says   string
	}{
		{Async, Installations{}, "mysqld: run `make mysql`"},
		{Galera, mysql, "scripts/get-rivals.sh"},
		{Router, mysql, "mysqlrouter"},
		{Quorate, mysql, "make build"},
	} {
		o := Options{System: tc.system, Install: tc.in, Network: NewLoopback(1), Dir: t.TempDir()}
		err := o.normalize()
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.system, err, tc.says)
		}
	}
}

func TestOnlineWantsAMajority(t *testing.T) {
	for _, tc := range []struct {
		name string
		all  []member
		want bool
	}{
		{"whole", []member{{"a", "ONLINE", "PRIMARY"}, {"b", "ONLINE", ""}, {"c", "ONLINE", ""}}, true},
		{"one is away", []member{{"a", "ONLINE", "PRIMARY"}, {"b", "UNREACHABLE", ""}, {"c", "ONLINE", ""}}, true},
		{"cut off", []member{{"a", "ONLINE", "PRIMARY"}, {"b", "UNREACHABLE", ""}, {"c", "UNREACHABLE", ""}}, false},
		{"joining", []member{{"a", "RECOVERING", ""}, {"b", "ONLINE", "PRIMARY"}}, false},
		{"expelled", []member{{"a", "ERROR", ""}}, false},
		{"alone by right", []member{{"a", "ONLINE", "PRIMARY"}}, true},
	} {
		if got := online(tc.all, "a"); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestMarkSafe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grastate.dat")
	const before = "# GALERA saved state\nversion: 2.1\nuuid:    x\nseqno:   -1\nsafe_to_bootstrap: 0\n"
	if err := os.WriteFile(file, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := markSafe(file); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(file)
	if err != nil || string(after) != strings.Replace(before, "bootstrap: 0", "bootstrap: 1", 1) {
		t.Errorf("file is %q, %v", after, err)
	}
}
