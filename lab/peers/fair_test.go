package peers

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/testkit/mysqlrouter"
)

// rendered returns the settings in the option files of a system's servers, by node.
func rendered(t *testing.T, o Options) map[string]map[string]string {
	t.Helper()
	o.Install = Installations{MySQL: &install.Installation{}, MariaDB: "/x", MySQLRouter: "/x", Quorate: "/x"}
	o.Network, o.Dir = NewLoopback(1), t.TempDir()
	if err := o.normalize(); err != nil {
		t.Fatal(err)
	}
	d := &Deployment{opts: o}
	var all []*server
	switch driver := d.newDriver().(type) {
	case *replicated:
		all = driver.all
	case *group:
		all = driver.all
	case *galera:
		all = driver.all
	default:
		t.Fatalf("no servers of %s", o.System)
	}
	vars := map[string]map[string]string{}
	for _, s := range all {
		vars[s.name] = s.vars
	}
	return vars
}

// TestSettingsAreTheBestAdvice: each option sets the right variable in the files of the right servers.
func TestSettingsAreTheBestAdvice(t *testing.T) {
	none := 0
	const gr = "loose_group_replication_"
	for _, tc := range []struct {
		o          Options
		node, name string
		want       string
	}{
		{Options{System: MGR}, "a", gr + "transaction_size_limit", "2147483647"},
		{Options{System: MGR, SizeLimit: "default"}, "a", gr + "transaction_size_limit", "150000000"},
		{Options{System: MGR}, "c", gr + "message_cache_size", "1073741824"},
		{Options{System: MGR}, "b", gr + "member_expel_timeout", "5"},
		{Options{System: MGR, ExpelTimeout: &none}, "b", gr + "member_expel_timeout", "0"},
		{Options{System: MGR, PaxosSingleLeader: true}, "b", gr + "paxos_single_leader", "ON"},
		{Options{System: MGR, ElectUpdated: true}, "b", gr + "elect_prefers_most_updated.enabled", "ON"},
		{Options{System: Async, Instruments: "mysql"}, "a", instrumentOption, "memory/%=ON"},
		{Options{System: Galera}, "a", instrumentOption, ""},
		{Options{System: MGR, ReplicaDurability: relaxed}, "a", "sync_binlog", "1"},
		{Options{System: MGR, ReplicaDurability: relaxed}, "b", "sync_binlog", "0"},
		{Options{System: MGR, ReplicaDurability: relaxed}, "b", "log_replica_updates", ""}, // a group needs it
		{Options{System: Async, ReplicaDurability: relaxed}, "a", "innodb_flush_log_at_trx_commit", "1"},
		{Options{System: Async, ReplicaDurability: relaxed}, "c", "innodb_flush_log_at_trx_commit", "2"},
		{Options{System: Async, ReplicaDurability: relaxed}, "c", "log_replica_updates", "OFF"},
		{Options{System: SemiSync}, "b", "relay_log_recovery", "ON"},
		{Options{System: SemiSync, RelayLogRecovery: "off"}, "b", "relay_log_recovery", "OFF"},
		{Options{System: SemiSync}, "b", "sync_relay_log", "10000"},
		{Options{System: SemiSync, SyncRelayLog: true}, "b", "sync_relay_log", "1"},
		{Options{System: Galera}, "a", "performance_schema", "OFF"},
		{Options{System: Async}, "a", "performance_schema", "ON"},
		{Options{System: Galera}, "a", "innodb_io_capacity", "10000"},
		{Options{System: Async}, "a", "innodb_io_capacity", "10000"},
		{Options{System: Galera}, "a", "innodb_log_buffer_size", "67108864"},
	} {
		if got := rendered(t, tc.o)[tc.node][tc.name]; got != tc.want {
			t.Errorf("%+v: %s of %s is %q, want %q", tc.o, tc.name, tc.node, got, tc.want)
		}
	}
}

func TestProviderOptions(t *testing.T) {
	near, far := providerValues(providerOptions(Options{})), providerValues(providerOptions(Options{WAN: true, Writers: WritersOne}))
	if near["evs.send_window"] != "" || far["evs.send_window"] != "1024" || far["evs.user_send_window"] != "512" {
		t.Errorf("send windows %q near, %q and %q far", near["evs.send_window"], far["evs.send_window"], far["evs.user_send_window"])
	}
	if near["gcs.fc_master_slave"] != "NO" || far["gcs.fc_master_slave"] != "YES" {
		t.Errorf("one writer: %q and %q", near["gcs.fc_master_slave"], far["gcs.fc_master_slave"])
	}
	fast := providerValues(providerOptions(Options{Suspect: time.Second}))
	if fast["evs.suspect_timeout"] != "PT1S" || fast["evs.keepalive_period"] != "PT0.333S" {
		t.Errorf("suspects %v", fast)
	}
}

// TestDifferingSettingsAreNamed: settings that the servers do not really have are an error, so that a report names only
// true settings.
func TestDifferingSettingsAreNamed(t *testing.T) {
	has := map[string]string{
		"sync_binlog": "1", "gtid_mode": "ON", "max_connections": "1000", "plugin_dir": "/x/plugin/", "secure_file_priv": "",
		"group_replication_paxos_single_leader": "ON", "wsrep_provider_options": "gcs.fc_limit = 256; gcs.fc_factor = 0.99; evs.send_window = 4",
		"innodb_log_buffer_size": "16777216",
	}
	fine := map[string]string{
		"sync_binlog": "1", "gtid_mode": "on", "max_connections": "1000", "plugin_dir": "/x/plugin", "secure_file_priv": "NULL",
		"loose_group_replication_paxos_single_leader": "ON", "wsrep_provider_options": "gcs.fc_limit=256;gcs.fc_factor=0.99",
		"plugin_load_add": "group_replication.so", "mysqlrouter ttl": "0.5",
	}
	if err := differing(fine, has); err != nil {
		t.Errorf("refused: %v", err)
	}
	for name, value := range map[string]string{
		"sync_binlog": "0", "gtid_mode": "OFF", "innodb_log_buffer_size": "67108864", "loose_group_replication_paxos_single_leader": "OFF",
		"wsrep_provider_options": "evs.send_window=1024", "no_such_setting": "1", "secure_file_priv": "/tmp",
	} {
		want := maps.Clone(fine)
		want[name] = value
		if err := differing(want, has); err == nil {
			t.Errorf("%s=%s: accepted", name, value)
		}
	}
}

func TestFactsAreAsRead(t *testing.T) {
	d := &Deployment{read: map[string]map[string]string{
		"sync_binlog": {"a": "1", "b": "0", "c": "0"}, "innodb_io_capacity": {"a": "10000", "b": "10000"},
		"sync_relay_log": {"a": "10000"}, providerVariable: {"a": "gcs.fc_limit = 256; x = 1", "b": "gcs.fc_limit = 256; x = 2"},
	}}
	got := map[string]string{}
	for _, s := range d.asRead([]Setting{{"sync_binlog", "1", "durable"}, {"innodb_io_capacity", "10000", "the same for all"}, remark("x")}) {
		got[s.Name] = s.Value
	}
	want := map[string]string{"sync_binlog": "a: 1, b: 0, c: 0", "innodb_io_capacity": "10000", "sync_relay_log": "10000", "": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	if got := d.Setting("gcs.fc_limit"); got != "256" {
		t.Errorf("gcs.fc_limit is %q", got)
	}
}

func TestLeadersAreCounted(t *testing.T) {
	for text, want := range map[string]int{"": 0, "u1": 1, "u1,u2,u3": 3, "u1, u2": 2} {
		if got := countListed(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestExpelledWantsAMajority: the view of one node, or a mere suspicion, does not count as an expulsion.
func TestExpelledWantsAMajority(t *testing.T) {
	nodes := []string{"a", "b", "c"}
	for _, tc := range []struct {
		name string
		v    views
		want []string
	}{
		{"whole", views{"a": {}, "b": {}, "c": {}}, nil},
		{"both others", views{"b": {"a": outside}, "c": {"a": outside}}, []string{"a"}},
		{"one other", views{"b": {"a": outside}, "c": {}}, nil},
		{"suspected", views{"b": {"a": suspected}, "c": {"a": suspected}}, nil},
		{"it says so itself", views{"a": {"a": outside, "b": outside, "c": outside}, "b": {"a": outside}, "c": {}}, nil},
	} {
		if diff := cmp.Diff(tc.want, tc.v.expelled(nodes, nodes)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestSightsOfAGroup(t *testing.T) {
	servers := []*server{{node: &node{name: "a"}}, {node: &node{name: "b"}}, {node: &node{name: "c"}}, {node: &node{name: "d"}}}
	got := sightsOf(servers, []member{{"a", "ONLINE", "PRIMARY"}, {"b", "UNREACHABLE", ""}, {"c", "RECOVERING", ""}})
	if diff := cmp.Diff(map[string]sight{"a": inside, "b": suspected, "c": outside, "d": outside}, got); diff != "" {
		t.Errorf("sights (-want +got):\n%s", diff)
	}
}

// TestDetectionIsSaid: each system whose nodes watch each other says how they do it.
func TestDetectionIsSaid(t *testing.T) {
	said := map[string]bool{}
	for _, w := range []watcher{&group{}, &galera{}, &agents{}} {
		said[w.detection()] = true
	}
	if len(said) != 3 || slices.ContainsFunc(slices.Collect(maps.Keys(said)), func(s string) bool { return strings.TrimSpace(s) == "" }) {
		t.Errorf("detections %v", said)
	}
}

// TestInstrumentsAreEverybodysOnes: the option files of all MySQL servers have the same instruments. quorate's servers
// get them from quorate by default, or are told the same.
func TestInstrumentsAreEverybodysOnes(t *testing.T) {
	for _, choice := range []string{"", instrumentsMySQL, instrumentsLeast} {
		want := Options{Instruments: choice}.instruments().Value
		for _, system := range []string{Standalone, Async, SemiSync, MGR, MGRAfter, MGRMulti} {
			for node, vars := range rendered(t, Options{System: system, Instruments: choice}) {
				if vars[instrumentOption] != want {
					t.Errorf("%s of %s, instruments %q: %q", node, system, choice, vars[instrumentOption])
				}
			}
		}
	}
	file := renderOptions(map[string]string{instrumentOption: Options{}.instruments().Value})
	for _, line := range []string{"memory/%=OFF", "thread/%=ON"} {
		if !strings.Contains(file, "\n"+instrumentOption+"="+line+"\n") {
			t.Errorf("no line for %s in\n%s", line, file)
		}
	}
	for choice, want := range map[string]string{"": "", instrumentsMySQL: "memory/%=ON", instrumentsLeast: "%=OFF"} {
		if got, told := (Options{Instruments: choice}).ownInstruments(); got != want || told != (want != "") {
			t.Errorf("quorate is told %q, %t of instruments %q", got, told, choice)
		}
	}
}

// TestRouterIsTunedAlike: MySQL Router in front of Group Replication has the settings that it has in front of quorate.
// Before, it had a thread for each processor in place of 16, and timeouts of 5 s and 30 s in place of 1 s and 2 s.
func TestRouterIsTunedAlike(t *testing.T) {
	o := Options{System: Router, Network: NewLoopback(1), Dir: t.TempDir(), Install: Installations{MySQL: &install.Installation{}, MySQLRouter: "/x"}}
	if err := o.normalize(); err != nil {
		t.Fatal(err)
	}
	r := newRouted(&Deployment{opts: o})
	text := r.render("/x")
	for _, s := range []struct{ name, line, value string }{
		{"connect_timeout", "connect_timeout=", mysqlrouter.ConnectTimeout},
		{"read_timeout", "read_timeout=", mysqlrouter.ReadTimeout},
		{"io.threads", "[io]\nthreads=", mysqlrouter.IOThreads},
	} {
		if !strings.Contains(text, s.line+s.value+"\n") {
			t.Errorf("no %s%s in\n%s", s.line, s.value, text)
		}
		if !slices.ContainsFunc(r.facts().Settings, func(got Setting) bool { return got.Name == "mysqlrouter "+s.name && got.Value == s.value }) {
			t.Errorf("%s is not in the report's settings", s.name)
		}
	}
}

// elsewhere is a Loopback whose addresses are not those of loopback.
type elsewhere struct{ *Loopback }

func (elsewhere) Addr(node string) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, node[0]}) }

// TestClientsWays: for each way of the clients mysqld listens, and clients connect, at the right address.
func TestClientsWays(t *testing.T) {
	const router, port = "6446", "3306"
	for _, test := range []struct{ clients, bind, at string }{
		{"", "127.0.0.1", router}, {clientsKernel, "10.0.0.97", router}, {clientsPort, "10.0.0.97", port},
	} {
		o := Options{System: Quorate, Clients: test.clients, Loggers: 1, Network: elsewhere{NewLoopback(1)}, Dir: t.TempDir()}
		o.Install = Installations{MySQL: &install.Installation{}, Quorate: "/x"}
		if err := o.normalize(); err != nil {
			t.Fatal(err)
		}
		d := &Deployment{opts: o}
		a := newQuorate(d)
		d.driver = a
		if text := a.render(d.nodes[0]); !strings.Contains(text, "bind = \""+test.bind+"\"\nport = 3306") || !strings.Contains(text, `listen = "127.0.0.1:7402"`) {
			t.Errorf("clients %q:\n%s", test.clients, text)
		}
		var all []string
		for _, e := range d.Endpoints() {
			all = append(all, e.Addr)
		}
		want := []string{"10.0.0.97:" + test.at, "10.0.0.98:" + test.at}
		if test.at == router {
			want = append(want, "10.0.0.99:"+router) // a logger has no server
		}
		if diff := cmp.Diff(want, all); diff != "" {
			t.Errorf("clients %q (-want +got):\n%s", test.clients, diff)
		}
	}
}
