package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/backup/ship"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// TestWhichIsRestored: a restore takes the newest full backup that can be restored. A verification always takes the
// newest one, and fails if that cannot be restored. If a named backup is not there, the error says so.
func TestWhichIsRestored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := make([]string, 2)
	for i := range names {
		at := time.Unix(int64(i)*100_000, 0).UTC()
		names[i] = archive.FullName(at, "a")
		m := archive.Manifest{Start: archive.Start{Format: archive.Format, Node: "a", MySQL: "1.0.0", At: at, Begin: replay.LogBegin{First: 1}}, Data: archive.DataName(names[i])}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, archive.ManifestName(names[i])), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The newest full backup has no data.
	if err := os.WriteFile(filepath.Join(dir, archive.DataName(names[0])), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := repository.NewDirectory(vfs.OS{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.MySQL.BaseDir = filepath.Join(dir, "no MySQL") // a restore that was begun ends with this error
	for _, c := range []struct {
		full   string
		verify bool
		want   string
	}{
		{"", false, "no MySQL"}, {"", true, "the newest full backup cannot be restored: " + names[1] + ": its data are missing"},
		{names[0], false, "no MySQL"}, {names[1], false, "full backup " + names[1] + " cannot be restored"}, {"full-x", false, "full backup full-x cannot be restored"},
	} {
		_, err := restoreInto(t.Context(), restoring{
			store: store, cfg: cfg, logger: slog.New(slog.DiscardHandler), errOut: io.Discard, full: c.full, verify: c.verify,
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestDamagedData: damaged data of a full backup are named, with the way to another one. A disk that is full is not their fault.
func TestDamagedData(t *testing.T) {
	t.Parallel()
	full := archive.Manifest{Data: "full-x.data"}
	for err, damaged := range map[error]bool{
		fmt.Errorf("unpack: %w: CRC", repository.ErrSealed):                    true,
		fmt.Errorf("unpack: %w", archive.ErrData):                              true,
		fmt.Errorf("unpack: %w for another key", repository.ErrEncrypted):      false,
		fmt.Errorf("unpack: %w", syscall.ENOSPC):                               false,
		fmt.Errorf("unpack: %w: interrupt signal received", repository.ErrGet): false,
	} {
		got := damagedData(full, err).Error()
		if named := strings.Contains(got, "read full-x.data: ") && strings.Contains(got, "--full"); named != damaged {
			t.Errorf("%v: %s", err, got)
		}
	}
}

// TestDamagedLog: an error of a damaged piece of the log says what to do. The wrong key is no damage.
func TestDamagedLog(t *testing.T) {
	t.Parallel()
	for err, damaged := range map[error]bool{
		fmt.Errorf("read log-x.qlog: %w: CRC", repository.ErrSealed):                    true,
		fmt.Errorf("read log-x.qlog: %w", archive.ErrCorrupt):                           true,
		fmt.Errorf("read log-x.qlog: %w for another key", repository.ErrEncrypted):      false,
		fmt.Errorf("read log-x.qlog: %w: interrupt signal received", repository.ErrGet): false,
	} {
		got := "restore the log: " + damagedLog(err).Error()
		if strings.Contains(got, "--up-to-gap") != damaged {
			t.Errorf("%v: %s", err, got)
		}
		if todo := pageSays(t, got); strings.Contains(todo, "move the object") != damaged {
			t.Errorf("docs/backup.md says of %q: %q", got, todo)
		}
	}
}

// pageSays returns what docs/backup.md says is to be done about an error; "" = nothing.
func pageSays(t *testing.T, text string) string {
	page, err := os.ReadFile("../../docs/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(page), "\n## When it fails\n")
	for row := range strings.Lines(rows) {
		cells := strings.Split(row, " | ")
		if len(cells) != 3 {
			continue
		}
		said := strings.ReplaceAll(regexp.QuoteMeta(strings.Trim(cells[0], "| `")), "…", ".*")
		if regexp.MustCompile(said).MatchString(text) {
			return cells[2]
		}
	}
	return ""
}

// TestFullsText: what is not known of a backup whose manifest was not read is not shown as if it were.
func TestFullsText(t *testing.T) {
	t.Parallel()
	got := strings.Join(strings.Fields(fullsText([]ship.FullBackup{{Name: "full-x", Problem: "permission denied"}})), " ")
	if want := "FULL BACKUP NODE SIZE RESTORES FROM TO PROBLEM full-x - - - - permission denied"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWrongData: a restore is refused if, and only if, mysqld could not start the data.
func TestWrongData(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ of, mysqld, want string }{
		{"9.7.4", "9.7.4", ""},
		{"9.7.4", "9.7.9", ""},
		{"9.7.9", "9.7.4", ""}, // both are of one series with long-term support
		{"8.4.7", "8.4.2", ""},
		{"8.4.7", "9.7.4", ""},
		{"", "9.7.4", ""}, // an older quorate made the backup
		{"of somebody", "9.7.4", ""},
		{"8.0.43", "8.0.36", "8.0.36 is older than 8.0.43"},
		{"9.7.4", "8.4.9", "8.4.9 is older than 9.7.4"},
		{"8.0.43", "9.7.4", "install 8.4 first"},
	} {
		if got := wrongData(test.of, test.mysqld); (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%q into %q: %q, want %q", test.of, test.mysqld, got, test.want)
		}
	}
}
