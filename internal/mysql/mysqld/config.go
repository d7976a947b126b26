package mysqld

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/install"
)

// Bounds and defaults.
const (
	// socketPathBytesMax is the longest path that fits into sockaddr_un.sun_path with its NUL.
	socketPathBytesMax = 107
	// binlogBytesMax is max_binlog_size. It must stay small, because a rotation fsyncs the
	// whole old file under LOCK_log. It also gives our segments their size, 128 MiB.
	binlogBytesMax = 128 << 20
	// stopTimeoutDefault bounds a graceful stop: dirty pages are flushed. The unit's TimeoutStopSec and a pod's
	// terminationGracePeriodSeconds are longer, 5 min.
	stopTimeoutDefault = 4 * time.Minute
	// variablesMax, variableNameBytesMax and valueBytesMax bound the operator's settings.
	variablesMax         = 256
	variableNameBytesMax = 128
	valueBytesMax        = 4096
)

// Errors of a Config.
var (
	// ErrGuarded: the operator set a variable that quorate's promise rests on.
	ErrGuarded = errors.New("variable is set by quorate")
	// ErrSocketPath: the Unix socket's path is too long for the kernel.
	ErrSocketPath = errors.New("socket path too long")
	// ErrConfig: another field has no usable value.
	ErrConfig = errors.New("invalid mysqld configuration")
)

// Config says how a node's mysqld is run.
type Config struct {
	// Installation is the MySQL to run.
	Installation *install.Installation
	// DataDir is the node's mysql directory (see the package comment); it is
	// created if missing. It must be absolute.
	DataDir string
	// Socket is the Unix socket; "" = DataDir/run/mysqld.sock. The kernel allows 107 bytes:
	// with a long DataDir, name a short path that only this node uses.
	Socket string
	// Port and Bind say where mysqld accepts TCP connections. Bind "" = 127.0.0.1. Several
	// addresses are separated by commas.
	Port int
	Bind string
	// ServerID is the server_id, not 0 and unique in the cluster.
	ServerID uint32
	// Inherit are files that every mysqld keeps open until its process ends. The caller closes
	// its own descriptors.
	Inherit []*os.File
	// OSUser is the account that mysqld runs as, if the agent is root; "" = the
	// agent's own.
	OSUser string
	// Variables are the operator's own settings, by option name. A guarded name
	// is refused with ErrGuarded.
	Variables map[string]string
	// StopTimeout bounds StopGracefully. 0 = 4 min.
	StopTimeout time.Duration
	// Secrets are the passwords of the internal accounts.
	Secrets Secrets
	// Logger receives mysqld's error log and what happens to the process.
	Logger *slog.Logger
}

// withDefaults returns c with every optional field filled.
func (c Config) withDefaults() Config {
	if c.Socket == "" {
		c.Socket = filepath.Join(c.DataDir, "run", "mysqld.sock")
	}
	if c.Bind == "" {
		c.Bind = "127.0.0.1"
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = stopTimeoutDefault
	}
	return c
}

// validate returns every fault of c, joined.
func (c Config) validate() error {
	var errs []error
	fault := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
		}
	}
	fault(c.Installation != nil, "no installation")
	fault(c.Logger != nil, "no logger")
	fault(filepath.IsAbs(c.DataDir), "data directory %q is not absolute", c.DataDir)
	fault(c.ServerID != 0, "server_id is 0")
	fault(c.Port > 0 && c.Port <= 65535, "port %d is not in 1..65535", c.Port)
	fault(len(c.Variables) <= variablesMax, "%d variables, at most %d", len(c.Variables), variablesMax)
	for _, path := range []string{c.DataDir, c.Socket} {
		fault(validValue(path), "path %q holds a quote, backslash or control character", path)
	}
	errs = append(errs, c.Secrets.validate())
	if len(c.Socket) > socketPathBytesMax {
		errs = append(errs, fmt.Errorf("%w: %s has %d bytes, the kernel allows %d; set a shorter socket path",
			ErrSocketPath, c.Socket, len(c.Socket), socketPathBytesMax))
	}
	errs = append(errs, CheckVariables(c.Variables))
	return errors.Join(errs...)
}

// CheckVariables judges the operator's own settings: it returns every fault,
// joined (ErrGuarded, ErrConfig).
func CheckVariables(variables map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		errs = append(errs, checkVariable(name, variables[name]))
	}
	return errors.Join(errs...)
}

// variableName has no bound on the length: "{0,127}" made each agent's start, and each command, compile 127 copies of it
// for every variable.
var variableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// checkVariable judges one of the operator's settings.
func checkVariable(name, value string) error {
	if len(name) > variableNameBytesMax || !variableName.MatchString(name) {
		return fmt.Errorf("%w: %q is not the name of a variable", ErrConfig, name)
	}
	if len(value) > valueBytesMax || !validValue(value) {
		return fmt.Errorf("%w: value of %s is over %d bytes or holds a quote, backslash or control character", ErrConfig, name, valueBytesMax)
	}
	if why := guardedBy(name, value); why != "" {
		return fmt.Errorf("%w: %s (%s)", ErrGuarded, name, why)
	}
	return nil
}

// validValue reports whether s can stand between double quotes in an option
// file without any escape. Line breaks would start a new option.
func validValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '"' || r == '\'' || r == '\\' })
}

// osIdentity is the account that mysqld runs as.
type osIdentity struct {
	// credential is what the child runs with; nil = as the agent.
	credential *syscall.Credential
	uid, gid   int
}

// Discover finds the MySQL that is to run as osUser, and runs it as that account to ask its
// version. It ignores an account that does not exist: that is reported elsewhere.
func Discover(baseDir, osUser string) (*install.Installation, error) {
	id, err := Config{OSUser: osUser}.identity()
	if err != nil {
		return install.Discover(baseDir)
	}
	return install.DiscoverAs(baseDir, id.credential)
}

// identity looks up OSUser. An agent that is not root can run mysqld only as itself.
func (c Config) identity() (osIdentity, error) {
	self := osIdentity{uid: os.Geteuid(), gid: os.Getegid()}
	if c.OSUser == "" {
		return self, nil
	}
	u, err := user.Lookup(c.OSUser)
	if err != nil {
		return osIdentity{}, fmt.Errorf("look up OS user of mysqld: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return osIdentity{}, fmt.Errorf("read uid of %s: %w", c.OSUser, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return osIdentity{}, fmt.Errorf("read gid of %s: %w", c.OSUser, err)
	}
	if uid == self.uid {
		return self, nil
	}
	if self.uid != 0 {
		return osIdentity{}, fmt.Errorf("%w: only root can run mysqld as %s", ErrConfig, c.OSUser)
	}
	// No supplementary groups: mysqld needs none.
	return osIdentity{
		credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
		uid:        uid, gid: gid,
	}, nil
}

// paths are the places below DataDir.
type paths struct {
	data, dataTemp, binlogs, relay, tmp, run string
	counter, lock, config, initSQL, pid      string
	foreignXA, room                          string
}

func (c Config) paths() paths {
	in := func(name ...string) string { return filepath.Join(append([]string{c.DataDir}, name...)...) }
	return paths{
		data: in("data"), dataTemp: in("data.init"), binlogs: in("binlog"), relay: in("relay"), tmp: in("tmp"), run: in("run"),
		counter: in("incarnation"), lock: in("mysqld.lock"), foreignXA: in("foreign-xa"), room: in("room"),
		config: in("my.cnf"), initSQL: in("init.sql"), pid: in("run", "mysqld.pid"),
	}
}

// binlogDir and binlogBase name incarnation n's binlog.
func (p paths) binlogDir(n uint64) string { return filepath.Join(p.binlogs, binlog.IncarnationDir(n)) }

func (p paths) binlogBase(n uint64) string {
	return filepath.Join(p.binlogDir(n), binlog.IncarnationBase(n))
}

// render returns the option file of incarnation n. It is a pure function of its receiver and
// arguments. The operator's settings come before ours: if an option is set twice the server
// takes the last value, so ours wins even where another spelling of a guarded name was not
// recognised.
func (c Config) render(n uint64, asRoot bool, o StartOptions) string {
	var b strings.Builder
	p := c.paths()
	fmt.Fprintf(&b, "# Written by quorate at every start of mysqld; changes are lost.\n[mysqld]\n")
	fmt.Fprintf(&b, "\n# Defaults that mysql.variables may override.\n")
	for _, s := range defaultSettings() {
		writeOption(&b, s.name, s.value)
	}
	if !c.sets(instrumentOption) {
		for _, name := range InstrumentsOff() {
			writeOption(&b, instrumentOption, name+"=OFF")
		}
	}
	if len(c.Variables) > 0 {
		fmt.Fprintf(&b, "\n# mysql.variables of the node's configuration.\n")
		for _, name := range slices.Sorted(maps.Keys(c.Variables)) {
			writeOption(&b, name, c.Variables[name])
		}
	}
	if len(o.Variables) > 0 {
		fmt.Fprintf(&b, "\n# Of the whole cluster (quorate variables set).\n")
		for _, name := range slices.Sorted(maps.Keys(o.Variables)) {
			writeOption(&b, "loose_"+name, o.Variables[name])
		}
	}
	fmt.Fprintf(&b, "\n# Places and identity.\n")
	if asRoot {
		// mysqld refuses to run as root without this option. The uid does not change, so the
		// parent-death signal stays set.
		writeOption(&b, "user", "root")
	}
	writeOption(&b, "datadir", p.data)
	writeOption(&b, "tmpdir", p.tmp)
	writeOption(&b, "replica_load_tmpdir", p.tmp)
	writeOption(&b, "socket", c.Socket)
	writeOption(&b, "pid_file", p.pid)
	writeOption(&b, "init_file", p.initSQL)
	writeOption(&b, "port", strconv.Itoa(c.Port))
	writeOption(&b, "bind_address", c.Bind)
	writeOption(&b, "server_id", strconv.FormatUint(uint64(c.ServerID), 10))
	b.WriteString(c.installationOptions())
	writeOption(&b, "log_bin", p.binlogBase(n))
	writeOption(&b, "log_bin_index", p.binlogBase(n)+".index")
	writeOption(&b, "relay_log", filepath.Join(p.relay, "relay"))
	writeOption(&b, "relay_log_index", filepath.Join(p.relay, "relay.index"))
	// Another node that joins copies this one's data.
	writeOption(&b, "plugin_load_add", "clone=mysql_clone.so")
	for _, name := range InstrumentsKept() {
		writeOption(&b, instrumentOption, name+"=ON")
	}
	fmt.Fprintf(&b, "\n# What the promise stands on (docs/architecture.md); checked while the server runs.\n")
	for _, s := range c.guardedSettings(o) {
		if s.checkOnly {
			continue
		}
		writeOption(&b, s.name, s.value)
	}
	return b.String()
}

// sets says whether the operator sets an option.
func (c Config) sets(option string) bool {
	return slices.ContainsFunc(slices.Sorted(maps.Keys(c.Variables)), func(name string) bool { return normalizeOption(name) == option })
}

// installationOptions names the installation's own directories.
func (c Config) installationOptions() string {
	var b strings.Builder
	for _, o := range [][2]string{
		{"plugin_dir", c.Installation.PluginDir},
		{"lc_messages_dir", c.Installation.ShareDir},
		{"character_sets_dir", c.Installation.CharsetsDir},
	} {
		if o[1] != "" {
			writeOption(&b, o[0], o[1])
		}
	}
	return b.String()
}

// renderInitialize returns the option file for --initialize. It has those settings of the
// operator that cannot be changed once the data directory is made.
func (c Config) renderInitialize(asRoot bool) string {
	var b strings.Builder
	b.WriteString("[mysqld]\n")
	for _, name := range []string{
		"lower_case_table_names", "innodb_page_size", "innodb_data_file_path",
		"innodb_redo_log_capacity", "character_set_server", "collation_server",
	} {
		for _, key := range slices.Sorted(maps.Keys(c.Variables)) {
			if strings.ReplaceAll(strings.ToLower(key), "-", "_") == name {
				writeOption(&b, name, c.Variables[key])
			}
		}
	}
	if asRoot {
		writeOption(&b, "user", "root")
	}
	writeOption(&b, "datadir", c.paths().dataTemp)
	writeOption(&b, "secure_file_priv", "NULL")
	b.WriteString(c.installationOptions())
	return b.String()
}

// writeOption writes one line. Values are quoted where the option file would read them in
// another way (a # starts a comment). validValue has excluded quotes.
func writeOption(b *strings.Builder, name, value string) {
	if strings.ContainsAny(value, " #;=") {
		value = `"` + value + `"`
	}
	fmt.Fprintf(b, "%s=%s\n", name, value)
}
