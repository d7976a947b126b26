package mysqld

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/mysql/install"
)

// Errors of a look at a data directory.
var (
	// ErrNoData: the directory is no data directory of a server that quorate knows.
	ErrNoData = errors.New("no data directory of MySQL 8.0 or later")
	// ErrInUse: a server runs on the directory.
	ErrInUse = errors.New("a mysqld runs on it: shut that down first, and keep it from being started again")
	// ErrUnclean: the server of the directory was not shut down in order.
	ErrUnclean = errors.New("its mysqld was not shut down in order: start it once more, as ever, and shut it down")
)

// dictionaryFile is in every data directory since 8.0. A server locks it while it runs, and ends
// at once if it does not get the lock. For the lock of ibdata1 a server would wait 100 s, and
// start when we release it.
const dictionaryFile = "mysql.ibd"

// HoldData keeps every other server from a data directory, until release is called or this
// process ends. It returns ErrInUse if one runs there.
func HoldData(dir string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, dictionaryFile), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: it has no %s", dir, ErrNoData, dictionaryFile)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the data: %w", err)
	}
	// The same lock as InnoDB's (os_file_lock), except that it belongs to this descriptor and
	// not to this process.
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%s: %w", dir, ErrInUse)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// Files has what the files of a data directory show. Lists have at most listMax names.
type Files struct {
	// UUID is the server's UUID, from auto.cnf.
	UUID string `json:"server_uuid"`
	// Version is the version of the server that was started on it last; zero = not known.
	Version install.Version `json:"-"`
	// Links has the symbolic links in it, Foreign the files that do not belong to the account
	// that mysqld will run as.
	Links   []string `json:"links,omitempty"`
	Foreign []string `json:"foreign,omitempty"`
	// Binlogs counts its binlog and relay log files, BinlogBytes is their size.
	Binlogs     int   `json:"binlogs"`
	BinlogBytes int64 `json:"binlog_bytes"`
	// Bytes is the size of all files.
	Bytes int64 `json:"bytes"`
	// Persisted are the variables that SET PERSIST has kept.
	Persisted []string `json:"persisted,omitempty"`
}

// listMax bounds the length of a list of names: people read it.
const listMax = 200

// LookAtFiles looks at the files of a data directory. It reads no table.
func (c Config) LookAtFiles(dir string) (f Files, err error) {
	id, err := c.identity()
	if err != nil {
		return f, err
	}
	if f.UUID, err = uuidOf(filepath.Join(dir, "auto.cnf")); err != nil {
		return f, fmt.Errorf("%s: %w", dir, err)
	}
	if f.Version, err = versionOf(dir); err != nil {
		return f, err
	}
	if f.Persisted, err = persisted(filepath.Join(dir, "mysqld-auto.cnf")); err != nil {
		return f, err
	}
	numbered := regexp.MustCompile(`^[^.]+(?:\.[^.]+)*\.[0-9]{6,}$`)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path) // cannot fail: path is below dir
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != id.uid && len(f.Foreign) < listMax {
			f.Foreign = append(f.Foreign, name)
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0 && len(f.Links) < listMax:
			f.Links = append(f.Links, name)
		case info.Mode().IsRegular():
			f.Bytes += info.Size()
			if filepath.Dir(path) == dir && numbered.MatchString(name) {
				f.Binlogs++
				f.BinlogBytes += info.Size()
			}
		}
		return nil
	})
	if err != nil {
		return f, fmt.Errorf("look at the data: %w", err)
	}
	return f, nil
}

// uuidOf reads a server's UUID.
func uuidOf(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: it has no auto.cnf", ErrNoData)
	}
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^server-uuid=([0-9a-f-]{36})\s*$`).FindSubmatch(b)
	if found == nil {
		return "", fmt.Errorf("auto.cnf names no server-uuid in small letters")
	}
	return string(found[1]), nil
}

// historyFile is where mysqld notes its version, since 8.4.
const historyFile = "mysql_upgrade_history"

// versionOf returns the version of the server that made the data or upgraded them last; zero =
// not known.
func versionOf(dir string) (install.Version, error) {
	b, err := os.ReadFile(filepath.Join(dir, historyFile))
	if err == nil {
		var h struct {
			History []struct {
				Version string `json:"version"`
			} `json:"upgrade_history"`
		}
		if err := json.Unmarshal(b, &h); err != nil || len(h.History) == 0 {
			return install.Version{}, nil // the file is the server's own note, and its form may change
		}
		return parsedVersion(h.History[len(h.History)-1].Version), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return install.Version{}, fmt.Errorf("read the version of the data: %w", err)
	}
	b, err = os.ReadFile(filepath.Join(dir, "mysql_upgrade_info"))
	if errors.Is(err, fs.ErrNotExist) {
		return install.Version{}, nil
	}
	if err != nil {
		return install.Version{}, fmt.Errorf("read the version of the data: %w", err)
	}
	return parsedVersion(string(b)), nil
}

// parsedVersion returns the version at the beginning of text; zero = there is none.
func parsedVersion(text string) install.Version {
	v, err := install.ParseVersion(strings.TrimSpace(text))
	if err != nil {
		return install.Version{}
	}
	return v
}

// persisted reads the names of the variables that SET PERSIST has kept.
func persisted(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read persisted variables: %w", err)
	}
	var groups map[string]json.RawMessage
	if err := json.Unmarshal(b, &groups); err != nil {
		return nil, fmt.Errorf("read persisted variables of %s: %w", path, err)
	}
	var names []string
	for _, raw := range groups {
		var group map[string]json.RawMessage
		if json.Unmarshal(raw, &group) != nil {
			continue // the version of the file's format
		}
		for name, value := range group {
			var below map[string]json.RawMessage
			if name == "mysql_server_static_options" && json.Unmarshal(value, &below) == nil {
				for name := range below {
					names = append(names, name)
				}
				continue
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
