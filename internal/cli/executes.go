package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// discover finds the MySQL that a configuration names. That executes mysqld, to ask for its version.
func discover(c config.Config) (*install.Installation, error) {
	if err := mayExecute(c.File()); err != nil {
		return nil, err
	}
	return mysqld.Discover(c.MySQL.BaseDir, c.MySQL.User)
}

// mayExecute, as root, refuses a configuration file that another account may change: that account could make root execute
// any program.
func mayExecute(file string) error {
	if os.Geteuid() != 0 || file == "" {
		return nil
	}
	if why := bendable(file); why != "" {
		return fmt.Errorf("root executes nothing that %s names: %s, or run this command as the agent's account (sudo -u)", file, why)
	}
	return nil
}

// bendable says that another account than root may change a file or put another file in its place, and what to do
// about it; "" = only root may.
func bendable(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "" // nobody could read the file either
	}
	for _, of := range []string{file, path} {
		for at := of; ; at = filepath.Dir(at) {
			if why := othersMay(at); why != "" {
				return why
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	return ""
}

// othersMay says that others than root may change a file, or the entries of a directory. In a sticky directory, such as
// /tmp, they may only change their own entries.
func othersMay(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Perm()&0o022 != 0 && !(info.IsDir() && info.Mode()&fs.ModeSticky != 0):
		return fmt.Sprintf("others may change %s (mode %#o): chmod go-w %s", path, info.Mode().Perm(), path)
	case ok && st.Uid != 0:
		return fmt.Sprintf("%s belongs to uid %d: chown root %s", path, st.Uid, path)
	}
	return ""
}
