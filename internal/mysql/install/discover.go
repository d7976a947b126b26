package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// EnvBaseDir is the environment variable that names an installation when the
// configuration does not.
const EnvBaseDir = "QUORATE_MYSQL_BASE"

// versionTimeout bounds `mysqld --version`. It takes milliseconds from the page
// cache; a 70 MB program and its libraries on a busy cold disk took 5 s.
const versionTimeout = 60 * time.Second

// Errors of Discover. Each is wrapped in a line that says where Discover looked.
var (
	// ErrNotFound: there is no mysqld where Discover looked.
	ErrNotFound = errors.New("no mysqld found")
	// ErrTooOld: the server is older than VersionMin.
	ErrTooOld = errors.New("MySQL server too old")
	// ErrMariaDB: the server is MariaDB, whose replication differs.
	ErrMariaDB = errors.New("server is MariaDB, not MySQL")
	// ErrNoSemiSync: the plugin semisync_source.so is not in the plugin directory.
	ErrNoSemiSync = errors.New("plugin semisync_source.so missing")
)

// Installation is one MySQL on this machine. It is immutable.
type Installation struct {
	// BaseDir is the prefix in which the installation was found.
	BaseDir string
	// Version is the server's version.
	Version Version
	// Loader is the beginning of every command of a private prefix: its dynamic loader with the
	// library path. Empty for a normal installation.
	Loader []string
	// Mysqld is the server program. Mysql, Mysqlbinlog and Mysqldump are the
	// client programs, "" where the installation has none.
	Mysqld, Mysql, Mysqlbinlog, Mysqldump string
	// PluginDir holds semisync_source.so.
	PluginDir string
	// ShareDir holds the language directories (option lc_messages_dir), and
	// CharsetsDir the character sets (option character_sets_dir). "" where the
	// installation has no such directory in its prefix; the server then uses
	// the one compiled into it.
	ShareDir, CharsetsDir string
}

// MysqldArgv returns the argument vector that starts the server; the caller
// appends options, --defaults-file first. The options that name the
// installation's own directories belong into that file (ShareDir, CharsetsDir,
// PluginDir).
func (in *Installation) MysqldArgv() []string { return in.argv(in.Mysqld) }

// ClientArgv returns the argument vector of the mysql client, which reads no
// option file. It returns an error that wraps ErrNotFound where there is none.
func (in *Installation) ClientArgv() ([]string, error) { return in.clientArgv("mysql", in.Mysql) }

// MysqlbinlogArgv is ClientArgv for mysqlbinlog.
func (in *Installation) MysqlbinlogArgv() ([]string, error) {
	return in.clientArgv("mysqlbinlog", in.Mysqlbinlog)
}

func (in *Installation) argv(program string, args ...string) []string {
	return append(append(append([]string(nil), in.Loader...), program), args...)
}

func (in *Installation) clientArgv(name, program string) ([]string, error) {
	if program == "" {
		return nil, fmt.Errorf("%w: %s has no program %s", ErrNotFound, in.BaseDir, name)
	}
	argv := in.argv(program, "--no-defaults", "--plugin-dir="+in.PluginDir)
	if in.CharsetsDir != "" {
		argv = append(argv, "--character-sets-dir="+in.CharsetsDir)
	}
	return argv, nil
}

// Discover finds the MySQL to run: in baseDir if that is not empty, else in the
// directory that QUORATE_MYSQL_BASE names, else the mysqld on PATH (and in the
// usual sbin directories, which an ordinary user's PATH lacks).
//
// The error wraps ErrNotFound, ErrTooOld, ErrMariaDB or ErrNoSemiSync, or says
// why the server could not be asked for its version.
func Discover(baseDir string) (*Installation, error) { return DiscoverAs(baseDir, nil) }

// DiscoverAs is Discover for root: it runs the server program as another account to ask its
// version, because the account that mysqld runs as may own the program. nil = as this process.
func DiscoverAs(baseDir string, as *syscall.Credential) (*Installation, error) {
	origin := "mysql.base_dir"
	if baseDir == "" {
		origin, baseDir = EnvBaseDir, os.Getenv(EnvBaseDir)
	}
	if baseDir == "" {
		program, err := findOnPath()
		if err != nil {
			return nil, err
		}
		// PREFIX/bin/mysqld or PREFIX/sbin/mysqld.
		return describe(filepath.Dir(filepath.Dir(program)), program, nil, as)
	}
	baseDir, err := filepath.Abs(baseDir)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", origin, err)
	}
	for _, dir := range []string{"bin", "sbin", "libexec"} {
		if program := filepath.Join(baseDir, dir, "mysqld"); isProgram(program) {
			return describe(baseDir, program, nil, as)
		}
	}
	for _, dir := range []string{"usr/sbin", "usr/bin"} {
		if program := filepath.Join(baseDir, dir, "mysqld"); isProgram(program) {
			in, err := describe(filepath.Join(baseDir, "usr"), program, privateLoader(baseDir), as)
			if in != nil {
				in.BaseDir = baseDir
			}
			return in, err
		}
	}
	return nil, fmt.Errorf("%w: %s names %s, which has no bin/mysqld, sbin/mysqld or usr/sbin/mysqld", ErrNotFound, origin, baseDir)
}

func findOnPath() (string, error) {
	program, err := exec.LookPath("mysqld")
	if err != nil {
		for _, p := range []string{"/usr/sbin/mysqld", "/usr/local/sbin/mysqld", "/usr/libexec/mysqld", "/usr/local/mysql/bin/mysqld"} {
			if isProgram(p) {
				program, err = p, nil
				break
			}
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w: mysql.base_dir and %s are not set and PATH has no mysqld; install MySQL %s or newer, or set one of them",
			ErrNotFound, EnvBaseDir, VersionMin())
	}
	if program, err = filepath.Abs(program); err != nil {
		return "", fmt.Errorf("resolve path of mysqld: %w", err)
	}
	// /usr/bin/mysqld may be a link into the real prefix; if the link cannot be followed, the
	// program cannot be started either, which gives an error later.
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	return program, nil
}

// privateLoader returns the loader of a private prefix, nil if base has none. The root
// directory has a loader, too, but is no private prefix.
func privateLoader(base string) []string {
	if base == "/" {
		return nil
	}
	for _, pattern := range []string{"usr/lib/*/ld-linux*.so.*", "lib/*/ld-linux*.so.*", "usr/lib64/ld-linux*.so.*"} {
		if found := glob(base, pattern); found != "" {
			return []string{found, "--library-path", filepath.Dir(found)}
		}
	}
	return nil
}

// describe fills an Installation from the server program and its prefix.
func describe(prefix, program string, loader []string, as *syscall.Credential) (*Installation, error) {
	in := &Installation{BaseDir: prefix, Mysqld: program, Loader: loader}
	if err := in.readVersion(as); err != nil {
		return nil, err
	}
	for _, pattern := range []string{
		"lib*/mysql/plugin/semisync_source.so", "lib*/plugin/semisync_source.so",
		"lib/*/mysql/plugin/semisync_source.so", "lib*/mysql*/plugin/semisync_source.so",
	} {
		if found := glob(prefix, pattern); found != "" {
			in.PluginDir = filepath.Dir(found)
			break
		}
	}
	if in.PluginDir == "" {
		return nil, fmt.Errorf("%w: looked in the lib directories of %s; a complete MySQL server package has it", ErrNoSemiSync, prefix)
	}
	for _, pattern := range []string{"share/mysql*/english/errmsg.sys", "share/english/errmsg.sys"} {
		if found := glob(prefix, pattern); found != "" {
			in.ShareDir = filepath.Dir(filepath.Dir(found))
			break
		}
	}
	for _, pattern := range []string{"share/mysql*/charsets/Index.xml", "share/charsets/Index.xml"} {
		if found := glob(prefix, pattern); found != "" {
			in.CharsetsDir = filepath.Dir(found)
			break
		}
	}
	for name, target := range map[string]*string{"mysql": &in.Mysql, "mysqlbinlog": &in.Mysqlbinlog, "mysqldump": &in.Mysqldump} {
		for _, dir := range []string{filepath.Join(prefix, "bin"), filepath.Dir(program)} {
			if p := filepath.Join(dir, name); isProgram(p) {
				*target = p
				break
			}
		}
	}
	return in, nil
}

// readVersion asks the server for its version and checks it.
func (in *Installation) readVersion(as *syscall.Credential) error {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	argv := in.argv(in.Mysqld, "--no-defaults", "--version")
	var out []byte
	err := WithoutNetCapabilities(func() (err error) {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		// With it, mysqld would tell our service manager that it is ready.
		cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "NOTIFY_SOCKET=") })
		out, err = cmd.Output()
		return err
	})
	if err != nil {
		var detail string
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			detail = ": " + firstLine(string(exit.Stderr))
		}
		return fmt.Errorf("run %s --version: %w%s", in.Mysqld, err, detail)
	}
	v, err := parseVersionLine(string(out))
	if err != nil {
		return fmt.Errorf("judge %s: %w", in.Mysqld, err)
	}
	in.Version = v
	return nil
}

// parseVersionLine reads what `mysqld --version` prints, such as
// "/usr/sbin/mysqld  Ver 8.0.36 for Linux on x86_64 (MySQL Community Server - GPL)".
func parseVersionLine(out string) (Version, error) {
	line := firstLine(out)
	if strings.Contains(strings.ToLower(line), "mariadb") {
		return Version{}, fmt.Errorf("%w: %s", ErrMariaDB, line)
	}
	m := regexp.MustCompile(`\bVer (\S+)`).FindStringSubmatch(line)
	if m == nil {
		return Version{}, fmt.Errorf("read MySQL version: no \"Ver a.b.c\" in %q", line)
	}
	v, err := ParseVersion(m[1])
	if err != nil {
		return Version{}, err
	}
	if v.Compare(VersionMin()) < 0 {
		return Version{}, fmt.Errorf("%w: %s, quorate needs %s or newer", ErrTooOld, v, VersionMin())
	}
	return v, nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

// glob returns the first match of pattern below dir, "" if there is none. dir
// itself is taken literally.
func glob(dir, pattern string) string {
	matches, err := fs.Glob(os.DirFS(dir), pattern)
	if err != nil || len(matches) == 0 {
		return ""
	}
	return filepath.Join(dir, matches[0])
}

func isProgram(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}
