package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/agent"
	"github.com/quorate/quorate/internal/agent/founding"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/cli/doctor"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

func newConfigCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "config",
		Short: "Show the settings of a node, check a file, or write an example",
		Long:  `Shows the settings of a node, checks a configuration file, or writes an example.`,
		Example: `  quorate config example > node.toml
  quorate config check node.toml
  quorate config show`,
	}, newConfigExampleCommand(), newConfigCheckCommand(), newConfigShowCommand())
}

func newConfigExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "example",
		Short:   "Print a commented configuration with every setting at its default",
		Long:    `Prints a configuration file, with comments, that has every setting at its default.`,
		Example: `  quorate config example > node.toml`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), config.Example())
			return err
		},
	}
}

func newConfigCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file, without starting anything",
		Long: `Checks a configuration file, and prints one line for each mistake, with its line number in
the file. No server is started, and no data are touched: mysqld judges [mysql.variables] by
its option --validate-config.

A warning is about something that is allowed and probably not meant. Some examples: other
accounts may read or change a file that they should not; mysqld cannot use a file for TLS;
this account cannot use data_dir or mysql.bind; the node is to listen at an address that this
host does not have; this host has no mysqld. If the node's data
directory and key are on this host, the command looks at them as the agent does when it
starts. So run it as the agent's account.

Exit code 0: there is no mistake, and perhaps a warning. 1: a warning says that the agent
would not start. 2: there is a mistake.`,
		Example: `  quorate config check /etc/quorate/node.toml`,
		Args:    oneArg("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(args[0])
			if err != nil {
				return err
			}
			warnings, err := configWarnings(cmd.Context(), args[0], c)
			if err != nil {
				return err
			}
			warnings = append(warnings, addressWarnings(cmd.Context(), c)...) // doctor looks at the ports, too
			for _, text := range warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "quorate: warning: config %s: %s\n", args[0], text)
			}
			if slices.ContainsFunc(warnings, stopsAgent) {
				return &exitError{code: exitFailure}
			}
			right := "right"
			if len(warnings) > 0 {
				right = "right, but for the warnings"
			}
			return printText(cmd.OutOrStdout(), fmt.Sprintf("%s is %s: cluster %q, node %q of %d\n", args[0], right, c.Cluster, c.Node, len(c.Members)))
		},
	}
}

// stops ends a warning with which the agent would not start. The warning may be true only on this host.
const stops = ": the agent would not start"

func stopsAgent(warning string) bool { return strings.HasSuffix(warning, stops) }

// configWarnings says what in a configuration is allowed but probably not meant.
func configWarnings(ctx context.Context, path string, c config.Config) ([]string, error) {
	if _, err := repository.ParseRecipients(c.Backup.Recipients); err != nil {
		return nil, usage(c.Wrong(map[string]string{"backup.recipients": "backup.recipients: " + err.Error()}))
	}
	server, err := checkServer(ctx, c)
	warnings := c.Warnings()
	if text := c.OnLoopback(ctx); text != "" {
		warnings = append(warnings, text)
	}
	return slices.Concat(warnings, dataDirWarnings(c.DataDir), accountWarnings(c), groupWarnings(c), fenceWarnings(c),
		fileWarnings(path, c), hookWarnings(c), startWarnings(c), server), err
}

// addressWarnings says which addresses where the node is to listen are none of this host's. A name that is not found at once
// says nothing.
func addressWarnings(ctx context.Context, c config.Config) (texts []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, l := range doctor.Listens(c) {
		host, _, _ := net.SplitHostPort(l[1])
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
		if err == nil {
			_ = listener.Close()
		}
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			texts = append(texts, fmt.Sprintf("%s: %s is no address of this host"+stops, l[0], host))
		}
	}
	return texts
}

// checkServer lets this host's mysqld judge the operator's variables. There may be no mysqld
// here, because the file may be for another host.
func checkServer(ctx context.Context, c config.Config) (warnings []string, err error) {
	if c.Self().Kind == cluster.KindLogger {
		return nil, nil
	}
	install, err := discover(c)
	if err != nil {
		return []string{fmt.Sprintf("[mysql.variables] is not checked, and the node could not be started here: %v"+stops, err)}, nil
	}
	refused, err := mysqld.ValidateVariables(ctx, install, c.MySQL.Variables)
	if err != nil {
		return nil, err
	}
	files := mysqld.Config{DataDir: filepath.Join(c.DataDir, "mysql"), OSUser: c.MySQL.User, Variables: c.MySQL.Variables}
	place := files
	if agentUID(c) != os.Geteuid() { // the agent is not root, so its mysqld is of no other account
		place.OSUser = ""
	}
	if err := place.CheckPlace(); err != nil {
		warnings = append(warnings, fmt.Sprintf("data_dir: %v"+stops, err))
	}
	texts, err := files.CheckTLSFiles(ctx)
	if errors.Is(err, mysqld.ErrConfig) { // accountWarnings reports a missing account
		warnings = append(warnings, fmt.Sprintf("the files for TLS are not checked: only root can read them as %s", c.MySQL.User))
	}
	for _, text := range texts {
		warnings = append(warnings, "mysqld would start without TLS: mysql.variables."+text)
	}
	if text := zoneWarning(c); text != "" {
		warnings = append(warnings, text)
	}
	wrong := map[string]string{}
	for name, why := range refused {
		wrong["mysql.variables."+name] = fmt.Sprintf("mysqld %s would not start with mysql.variables.%s: %s", install.Version, name, why)
	}
	return warnings, usage(c.Wrong(wrong))
}

// zoneWarning is about a default_time_zone with which mysqld may not start; "" = there is none. A server that was adopted
// may have tables of time zones.
func zoneWarning(c config.Config) string {
	zone := mysqld.NamedZone(c.MySQL.Variables)
	if _, err := os.Stat(filepath.Join(c.DataDir, founding.DoneFile)); zone == "" || err == nil {
		return ""
	}
	return fmt.Sprintf("mysql.variables.default_time_zone is %q, and no offset such as +02:00: mysqld would not start, unless this is the cluster of an adopted server "+
		"that has tables of time zones (in every other cluster they are empty)", zone)
}

// startWarnings says why the agent would not start with the data directory and the key that are on this host. It also
// names the nodes for which the configuration has another key than the cluster.
func startWarnings(c config.Config) (texts []string) {
	if outdated := agent.OutdatedKeys(c); outdated != "" {
		texts = append(texts, outdated)
	}
	err := agent.CheckStart(c)
	if notIssued := agent.CheckIssuedKey(c); err == nil && notIssued != nil {
		texts = append(texts, fmt.Sprintf("the key in [peer_tls] cannot be used: %v: the node shows %s until that is mended", notIssued, c.KeyFile))
	}
	switch _, noKey := ownKey(c); {
	case err != nil && errors.Is(err, fs.ErrPermission) && isOfAnother(c.DataDir):
		return append(texts, fmt.Sprintf("%v: run this as the agent's account", err))
	case errors.Is(err, agent.ErrLogGone):
		return append(texts, fmt.Sprintf("%v: the agent ends, unless \"quorate node rebuild %s\" was run on another node", err, c.Node))
	case err != nil:
		return append(texts, err.Error()+stops)
	case c.Members[0].Key != "" && errors.Is(noKey, fs.ErrNotExist): // all members have a key, or none
		return append(texts, fmt.Sprintf("%v: put the node's key there, or make it with \"quorate key new\", before the agent starts", noKey))
	}
	return texts
}

// isOfAnother tells whether the data directory belongs to an account that is neither root nor this one, or this one may
// not even look: then another account runs the agent. Root runs none in a directory of mysqld's account.
func isOfAnother(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return errors.Is(err, fs.ErrPermission)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid != 0 && int(st.Uid) != os.Geteuid()
}

// agentUID is the account of a configuration's agent, as far as root can see it: an agent that runs has made its control
// socket, and one without mysql.user owns its data directory. Anybody else is taken for the agent's account.
func agentUID(c config.Config) int {
	self := os.Geteuid()
	if self != 0 {
		return self
	}
	places := []string{c.ControlSocket(), c.DataDir}
	if c.MySQL.User != "" {
		places = places[:1]
	}
	for _, path := range places {
		if info, err := os.Lstat(path); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				return int(st.Uid)
			}
		}
	}
	return self
}

// dataDirWarnings says that the data directory cannot be written, or cannot be made: an agent
// would end with that. A directory that it makes to try this is removed again.
func dataDirWarnings(path string) (texts []string) {
	cannot, at := "be written", path
	// access(2) itself: it sees chattr +i, which unix.Faccessat with flags does not.
	err := unix.Access(path+"/.", unix.W_OK|unix.X_OK)
	if errors.Is(err, fs.ErrNotExist) {
		cannot = "be made"
		for ; errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at); _, err = os.Stat(at) {
			at = filepath.Dir(at)
		}
		if err == nil {
			at, err = os.MkdirTemp(at, ".quorate-check-")
		}
		if err == nil {
			err = os.Remove(at)
		}
	}
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() && info.Mode().Perm()&0o022 != 0 {
		texts = append(texts, fmt.Sprintf("others may write in data_dir %s (%v): chmod go-w it"+stops, path, info.Mode()))
	}
	switch {
	case errors.Is(err, fs.ErrPermission) && isOfAnother(path):
		texts = append(texts, fmt.Sprintf("data_dir %s cannot %s by uid %d: %v: run this as the agent's account", path, cannot, os.Geteuid(), err))
	case err != nil:
		texts = append(texts, fmt.Sprintf("data_dir %s cannot %s by uid %d: %v"+stops, path, cannot, os.Geteuid(), err))
	}
	return texts
}

// accountWarnings says what is wrong on this host with the account as which mysqld is to
// run.
func accountWarnings(c config.Config) (texts []string) {
	if c.MySQL.User == "" || c.Self().Kind == cluster.KindLogger {
		return nil
	}
	if _, err := user.Lookup(c.MySQL.User); err != nil {
		return []string{fmt.Sprintf("mysql.user: this host has no account %q"+stops, c.MySQL.User)}
	}
	return nil
}

// groupWarnings says that this host lacks the OS group whose members may operate.
func groupWarnings(c config.Config) (texts []string) {
	if c.Control.Group == "" {
		return nil
	}
	if _, err := user.LookupGroup(c.Control.Group); err != nil {
		return []string{fmt.Sprintf("control.group: this host has no group %q"+stops, c.Control.Group)}
	}
	return nil
}

// changeable says which other accounts may change the configuration file, which names the program that the agent
// executes (mysql.base_dir); "" = none. If the agent, uid, is root, it also says who may put another file in the file's place.
func changeable(path string, uid int) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Sprintf("others may change it (mode %#o): chmod go-w %s", info.Mode().Perm(), path)
	}
	if uid != 0 {
		return ""
	}
	if why := bendable(path); why != "" {
		return "an agent that is root executes what it names, and " + why
	}
	return ""
}

// hookWarnings says that the hook cannot be run, or that others may change the program.
func hookWarnings(c config.Config) []string {
	if len(c.Hooks.OnChange) == 0 {
		return nil
	}
	path := c.Hooks.OnChange[0]
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("hooks.on_change: %v: it could not be run here", err)}
	case !info.Mode().IsRegular() || unix.Access(path, unix.X_OK) != nil:
		return []string{fmt.Sprintf("hooks.on_change: uid %d cannot execute %s: chmod +x it", os.Geteuid(), path)}
	}
	if text := hookChangeable(c, agentUID(c)); text != "" {
		return []string{text + stops}
	}
	return nil
}

// hookChangeable says which accounts, beside root and the agent's (uid), may change the program that it runs: the hook
// itself, or an entry of its directory; "" = none.
func hookChangeable(c config.Config, uid int) string {
	if len(c.Hooks.OnChange) == 0 {
		return ""
	}
	path := c.Hooks.OnChange[0]
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "" // it cannot be run either
	}
	for _, of := range []string{file, filepath.Dir(file), filepath.Dir(path)} {
		info, err := os.Stat(of)
		if err != nil || errors.Is(unix.Access(of, unix.W_OK), unix.EROFS) { // nobody can change anything there
			continue
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case info.Mode().Perm()&0o022 != 0:
			return fmt.Sprintf("hooks.on_change: others may change %s (mode %#o), and the agent runs what is there: chmod go-w %s", of, info.Mode().Perm(), of)
		case ok && st.Uid != 0 && int(st.Uid) != uid:
			return fmt.Sprintf("hooks.on_change: %s belongs to uid %d, and the agent, uid %d, runs what is there: chown root %s", of, st.Uid, uid, of)
		}
	}
	return ""
}

// fenceWarnings says that this account could not fence mysqld's own port.
func fenceWarnings(c config.Config) (texts []string) {
	addr, err := netip.ParseAddr(c.MySQL.Bind)
	header, have := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err != nil || addr.IsLoopback() || c.Self().Kind == cluster.KindLogger || unix.Capget(&header, &have[0]) != nil ||
		have[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0 {
		return nil
	}
	return []string{fmt.Sprintf("mysql.bind: uid %d has no CAP_NET_ADMIN: without it an agent cannot fence mysqld at %s, and clients reach only the router; its unit may give it (AmbientCapabilities=CAP_NET_ADMIN)",
		os.Geteuid(), c.MySQL.Bind)}
}

// readableHash says that everybody may read a hash that is as good as a reader's password.
func readableHash(path string, c config.Config) string {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o004 == 0 || !slices.ContainsFunc(c.Readers, func(r config.Reader) bool { return r.PasswordFile == "" }) {
		return ""
	}
	return fmt.Sprintf("it has a password_hash, and everybody may read it (mode %#o): chmod o-r %s", info.Mode().Perm(), path)
}

// fileWarnings says that other accounts may read or change files that only the agent's account should. The
// readers' passwords give access to all data.
func fileWarnings(path string, c config.Config) (texts []string) {
	if text := changeable(path, agentUID(c)); text != "" {
		texts = append(texts, text+stops)
	}
	if text := readableHash(path, c); text != "" {
		texts = append(texts, text)
	}
	if c.API.TokensFile != "" {
		if err := api.CheckTokens(c.API.TokensFile); err != nil {
			texts = append(texts, fmt.Sprintf("%v"+stops, err))
		}
	}
	return append(texts, c.OpenPasswordFiles()...)
}
