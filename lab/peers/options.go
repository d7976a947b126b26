package peers

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/mysql/install"
)

// The systems.
const (
	Standalone = "standalone"
	Async      = "async"
	SemiSync   = "semisync"
	MGR        = "mgr"
	MGRAfter   = "mgr-after"
	MGRMulti   = "mgr-multi"
	Galera     = "galera"
	Router     = "router"
	Quorate    = "quorate"
)

// The values of Options.Writers.
const (
	WritersOne = "one"
	WritersAll = "all"
)

// relaxed is the value of Options.ReplicaDurability.
const relaxed = "relaxed"

// The values of Options.Instruments, beside "".
const (
	instrumentsMySQL = "mysql"
	instrumentsLeast = "least"
)

// The values of Options.Clients, beside "".
const (
	clientsKernel   = "kernel"
	clientsPort     = "port"
	clientsReplicas = "replicas"
	clientsSplit    = "split"
	clientsHAProxy  = "haproxy"
)

// ownPort says whether mysqld listens on an address of its node.
func (o *Options) ownPort() bool {
	return o.Clients == clientsKernel || o.Clients == clientsPort || o.Clients == clientsSplit
}

// readPort says whether the agents have a port for reads.
func (o *Options) readPort() bool { return o.Clients == clientsReplicas || o.Clients == clientsHAProxy }

// Database is the empty database that every deployment has, and User the account
// with every right on it.
const (
	Database = "sbtest"
	User     = "sbtest"
)

// clientNode is the node of the clients, and of the programs beside them.
const clientNode = "client"

// defaults of Options.
const (
	workersDefault         = 4
	bufferPoolBytesDefault = 128 << 20
)

// Options of a Deployment.
type Options struct {
	// System is one of Systems.
	System  string
	Network Net
	// Dir is the deployment's directory: absent or empty, short (Unix sockets
	// are inside).
	Dir string
	// Templates holds initialised data directories from one deployment to the
	// next; "" = DIR/templates.
	Templates string
	Install   Installations
	// Workers are the appliers of a replica, all systems; 0 = 4, 1 = one thread.
	Workers int
	// Acks is how many replicas a semisync source waits for, 1 (0) or 2.
	Acks int
	// Loggers is how many of quorate's three members are loggers, 0 or 1;
	// Learners how many learners it has beside them, 0 to 2.
	Loggers, Learners int
	// Durability is "site-majority" for commits of quorate that wait for the other city; "" = majority. Sites is the
	// number of clusters: 2 is quorate as two clusters of three nodes, and the cluster of c's city follows that of
	// a's; 0 = 1.
	Durability string
	Sites      int
	// PaxosSingleLeader is group_replication_paxos_single_leader.
	PaxosSingleLeader bool
	// Compress compresses what is replicated, where the system can.
	Compress bool
	// Writers is "one" or "all": where Writers sends clients; "" = all for mgr-multi, else one.
	Writers string
	// Clients is the way to quorate's primary: "" = quorate's router; "kernel" = 6446 of the primary's node,
	// redirected to mysqld by the kernel; "port" = mysqld's own port; "replicas" = quorate's router, and 6447 of all
	// nodes for reads; "split" = MySQL Router's port that splits reads from writes; "haproxy" = HAProxy in front of
	// 6446, and of 6447 for reads.
	Clients string
	// PlainPeers: quorate's agents have no keys, and talk without TLS.
	PlainPeers bool
	// WAN says that the network has delays: galera then gets larger send windows.
	WAN bool
	// RelayLogRecovery is relay_log_recovery, on ("") or off; SyncRelayLog is sync_relay_log=1.
	RelayLogRecovery string
	SyncRelayLog     bool
	// ReplicaDurability is "relaxed" for replicas that do not fsync what they apply, like quorate's; "" = durable.
	ReplicaDurability string
	// ExpelTimeout is group_replication_member_expel_timeout in seconds; nil = 5.
	ExpelTimeout *int
	// Instruments are those of the Performance Schema, the same for every MySQL system: "" = quorate's default, "mysql" =
	// MySQL's default, "least" = what quorate's agents need.
	Instruments string
	// ElectUpdated loads the component with which a group elects the most up-to-date member.
	ElectUpdated bool
	// SizeLimit is "default" for the default of group_replication_transaction_size_limit; "" = the greatest value.
	SizeLimit string
	// Suspect is evs.suspect_timeout (galera); 0 = 5 s.
	Suspect time.Duration
	// NoSync leaves out the fsyncs of commits (standalone): such a server must lose
	// acknowledged transactions with the power, or the experiment proves nothing.
	NoSync bool
	// BufferPoolBytes is innodb_buffer_pool_size; 0 = 128 MiB.
	BufferPoolBytes int64
	// DataDirs says where a node's data are, for example below a mount that breaks;
	// nil = in Dir.
	DataDirs func(node string) string
	Logger   *slog.Logger
}

// Installations is where the programs are.
type Installations struct {
	// MySQL is the server of all systems but galera.
	MySQL *install.Installation
	// MariaDB, MySQLRouter and HAProxy are prefixes as scripts/get-rivals.sh makes them:
	// the programs are PREFIX/bin/NAME. "" = not installed.
	MariaDB, MySQLRouter, HAProxy string
	// Quorate is the quorate program.
	Quorate string
}

// EnvRivals names the directory that scripts/get-rivals.sh filled.
const EnvRivals = "QUORATE_RIVALS"

// ErrMissing: a program that a system needs is not installed.
var ErrMissing = errors.New("program is missing")

// FindInstallations looks for everything: MySQL where QUORATE_MYSQL_BASE says, then in
// .mysql, then on PATH; the rivals in rivals ("" = what QUORATE_RIVALS names, then
// .rivals); quorate beside this program. Deploy reports a missing program.
func FindInstallations(rivals, quorate string) Installations {
	var in Installations
	base := "" // look for it as quorate itself does
	if os.Getenv(install.EnvBaseDir) == "" && exists(".mysql") {
		base = ".mysql" // make puts it there
	}
	if mysql, err := install.Discover(base); err == nil {
		in.MySQL = mysql
	}
	if rivals == "" {
		rivals = os.Getenv(EnvRivals)
	}
	if rivals == "" {
		rivals = ".rivals"
	}
	for name, prefix := range map[string]*string{"mariadb": &in.MariaDB, "router": &in.MySQLRouter, "haproxy": &in.HAProxy} {
		if dir, err := filepath.Abs(filepath.Join(rivals, name)); err == nil && exists(filepath.Join(dir, "bin")) {
			*prefix = dir
		}
	}
	in.Quorate = quorate
	if self, err := os.Executable(); err == nil && quorate == "" {
		in.Quorate = filepath.Join(filepath.Dir(self), "quorate")
	}
	if !exists(in.Quorate) {
		in.Quorate = ""
	}
	return in
}

// Versions are the versions of the programs that are installed. Quorate's is a digest of the program, because each build
// may have other code.
func (in Installations) Versions() map[string]string {
	all := map[string]string{}
	if in.MySQL != nil {
		all["mysqld"] = in.MySQL.Version.String()
	}
	for program, prefix := range map[string]string{"mariadbd": in.MariaDB, "mysqlrouter": in.MySQLRouter, "haproxy": in.HAProxy} {
		if stamp, err := os.ReadFile(filepath.Join(prefix, ".quorate-rival")); err == nil && prefix != "" {
			all[program] = strings.TrimSpace(string(stamp))
		}
	}
	if text, err := os.ReadFile(in.Quorate); err == nil {
		all["quorate"] = fmt.Sprintf("sha256 %.6x", sha256.Sum256(text))
	}
	return all
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Info describes a system.
type Info struct {
	Name, Description string
	// Options are the names of the command line's options that apply to it,
	// beside those that apply to all.
	Options []string
}

// Systems lists the systems in the order of the reports.
func Systems() []Info {
	group := []string{"workers", "instruments", "paxos-single-leader", "elect-updated", "expel-timeout", "size-limit", "replica-durability"}
	replicas := []string{"workers", "instruments", "relay-log-recovery", "sync-relay-log", "replica-durability"}
	return []Info{
		{Standalone, "one mysqld, durable settings", []string{"instruments", "no-sync"}},
		{Async, "a source and two replicas, GTID, durable settings", replicas},
		{SemiSync, "the same, semi-synchronous: AFTER_SYNC, no timeout", append(slices.Clone(replicas), "acks")},
		{MGR, "Group Replication, single primary, consistency EVENTUAL", group},
		{MGRAfter, "Group Replication, single primary, consistency AFTER", group},
		{MGRMulti, "Group Replication, multi-primary: writers on every node, or on one", []string{"workers", "instruments", "writers", "expel-timeout", "size-limit"}},
		{Galera, "MariaDB and galera-4 from Debian 12", []string{"workers", "writers", "suspect"}},
		{Router, "mgr behind mysqlrouter, which runs beside the client", group},
		{Quorate, "three nodes of quorate", []string{"workers", "instruments", "clients", "plain-peers", "loggers", "learners", "durability", "sites"}},
	}
}

// normalize fills in defaults and judges.
func (o *Options) normalize() error {
	systems := Systems()
	i := slices.IndexFunc(systems, func(s Info) bool { return s.Name == o.System })
	if i < 0 {
		var names []string
		for _, s := range systems {
			names = append(names, s.Name)
		}
		return fmt.Errorf("peers: no system %q; there are %s", o.System, strings.Join(names, ", "))
	}
	if o.Workers == 0 {
		o.Workers = workersDefault
	}
	if o.Acks == 0 {
		o.Acks = 1
	}
	if o.Sites == 0 {
		o.Sites = 1
	}
	if o.Writers == "" {
		o.Writers = WritersOne
		if o.System == MGRMulti {
			o.Writers = WritersAll
		}
	}
	if o.BufferPoolBytes == 0 {
		o.BufferPoolBytes = bufferPoolBytesDefault
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Network == nil || o.Dir == "" {
		return errors.New("peers: a deployment needs a network and a directory")
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return fmt.Errorf("name the deployment's directory: %w", err)
	}
	if o.Templates == "" {
		o.Templates = filepath.Join(o.Dir, "templates")
	}
	return errors.Join(o.judge(systems[i]), o.missing())
}

// judge looks at the values that can be wrong.
func (o *Options) judge(system Info) error {
	for _, v := range []struct {
		name             string
		value, low, high int
		unset            int
	}{
		{"workers", o.Workers, 1, 64, workersDefault},
		{"acks", o.Acks, 1, 2, 1},
		{"loggers", o.Loggers, 0, 1, 0},
		{"learners", o.Learners, 0, 2, 0},
		{"sites", o.Sites, 1, 2, 1},
	} {
		if v.value < v.low || v.value > v.high {
			return fmt.Errorf("peers: %s %d; it can be %d to %d", v.name, v.value, v.low, v.high)
		}
		if v.value != v.unset && v.name != "workers" && !slices.Contains(system.Options, v.name) {
			return fmt.Errorf("peers: system %s has no option %s", system.Name, v.name)
		}
	}
	if o.Writers != WritersOne && o.Writers != WritersAll {
		return fmt.Errorf("peers: writers %q; it can be one or all", o.Writers)
	}
	if o.Writers == WritersAll && o.System != Galera && o.System != MGRMulti {
		return fmt.Errorf("peers: writers all is for %s and %s", Galera, MGRMulti)
	}
	for _, v := range []struct {
		name string
		set  bool
	}{
		{"paxos-single-leader", o.PaxosSingleLeader},
		{"elect-updated", o.ElectUpdated},
		{"instruments", o.Instruments != ""},
		{"clients", o.Clients != ""},
		{"plain-peers", o.PlainPeers},
		{"durability", o.Durability != ""},
		{"no-sync", o.NoSync},
		{"relay-log-recovery", o.RelayLogRecovery != ""},
		{"sync-relay-log", o.SyncRelayLog},
		{"replica-durability", o.ReplicaDurability != ""},
		{"expel-timeout", o.ExpelTimeout != nil},
		{"size-limit", o.SizeLimit != ""},
		{"suspect", o.Suspect != 0},
	} {
		if v.set && !slices.Contains(system.Options, v.name) {
			return fmt.Errorf("peers: system %s has no option %s", system.Name, v.name)
		}
	}
	return o.judgeValues()
}

// The ranges that the servers accept.
const (
	expelTimeoutMax = 3600
	suspectMin      = time.Second
	suspectMax      = 10 * time.Second // below evs.inactive_timeout
)

// judgeValues looks at the values of options that the system has.
func (o *Options) judgeValues() error {
	switch {
	case !slices.Contains([]string{"", "on", "off"}, o.RelayLogRecovery):
		return fmt.Errorf("peers: relay-log-recovery %q; it can be on or off", o.RelayLogRecovery)
	case !slices.Contains([]string{"", instrumentsMySQL, instrumentsLeast}, o.Instruments):
		return fmt.Errorf("peers: instruments %q; it can be %s or %s", o.Instruments, instrumentsMySQL, instrumentsLeast)
	case !slices.Contains([]string{"", clientsKernel, clientsPort, clientsReplicas, clientsSplit, clientsHAProxy}, o.Clients):
		return fmt.Errorf("peers: clients %q; it can be %s, %s, %s, %s or %s", o.Clients, clientsKernel, clientsPort, clientsReplicas, clientsSplit, clientsHAProxy)
	case !slices.Contains([]string{"", siteMajority}, o.Durability):
		return fmt.Errorf("peers: durability %q; it can be %s", o.Durability, siteMajority)
	case o.Sites > 1 && (o.Durability != "" || o.Clients != "" || o.Loggers+o.Learners > 0):
		return errors.New("peers: sites 2 is without durability, clients, loggers and learners")
	case !slices.Contains([]string{"", relaxed}, o.ReplicaDurability):
		return fmt.Errorf("peers: replica-durability %q; it can be %s", o.ReplicaDurability, relaxed)
	case o.ExpelTimeout != nil && (*o.ExpelTimeout < 0 || *o.ExpelTimeout > expelTimeoutMax):
		return fmt.Errorf("peers: expel-timeout %d; it can be 0 to %d", *o.ExpelTimeout, expelTimeoutMax)
	case !slices.Contains([]string{"", "default"}, o.SizeLimit):
		return fmt.Errorf("peers: size-limit %q; it can be default", o.SizeLimit)
	case o.Suspect != 0 && (o.Suspect < suspectMin || o.Suspect > suspectMax):
		return fmt.Errorf("peers: suspect %v; it can be %v to %v", o.Suspect, suspectMin, suspectMax)
	}
	return nil
}

// missing says what has to be installed first.
func (o *Options) missing() error {
	const get = "run scripts/get-rivals.sh DIR and set " + EnvRivals + "=DIR"
	switch {
	case o.System == Galera:
		if o.Install.MariaDB == "" {
			return fmt.Errorf("%w: system galera needs mariadbd and galera-4: %s", ErrMissing, get)
		}
		return nil
	case o.Install.MySQL == nil:
		return fmt.Errorf("%w: mysqld: run `make mysql` or set %s", ErrMissing, install.EnvBaseDir)
	case (o.System == Router || o.Clients == clientsSplit) && o.Install.MySQLRouter == "":
		return fmt.Errorf("%w: system %s needs mysqlrouter: %s", ErrMissing, o.System, get)
	case o.Clients == clientsHAProxy && o.Install.HAProxy == "":
		return fmt.Errorf("%w: clients %s needs haproxy: %s", ErrMissing, o.Clients, get)
	case o.System == Quorate && o.Install.Quorate == "":
		return fmt.Errorf("%w: quorate: run `make build`", ErrMissing)
	}
	return nil
}
