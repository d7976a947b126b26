package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// upgradedLog makes a log of two epochs, whose servers have different versions,
// of a real server's transactions.
func upgradedLog(t *testing.T) (dir string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "mysql", "binlog", "testdata", "mysql-9.7.4.000001"))
	if err != nil {
		t.Fatal(err)
	}
	fde, _, err := binlog.CutEvent(raw[len(binlog.Magic):])
	if err != nil {
		t.Fatal(err)
	}
	var transactions [][]byte
	for transaction, err := range binlog.Transactions(raw[len(binlog.Magic):]) {
		if err != nil {
			t.Fatal(err)
		}
		transactions = append(transactions, transaction.Raw)
	}
	dir = filepath.Join(t.TempDir(), "log")
	log, err := seglog.Open(seglog.Options{FS: vfs.OS{}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	index := uint64(0)
	put := func(term uint64, data []byte) {
		t.Helper()
		index++
		if err := log.Append([]seglog.Entry{{Index: index, Term: term, Data: data}}, &seglog.HardState{Term: term, Commit: index}); err != nil {
			t.Fatal(err)
		}
	}
	for i, version := range []string{"8.4.3", "9.7.4"} {
		term := uint64(i + 1)
		format := append(binlog.Event(nil), fde...)
		copy(format[binlog.HeaderBytes+2:], version+"\x00\x00\x00\x00")
		binlog.PutChecksum(format)
		put(term, entry.EncodeEpoch(entry.Epoch{Term: term, Primary: "a", ServerVersion: version, FormatDescription: format}))
		for n := range uint64(2) {
			header := entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: 1, Term: term, Number: n + 1})
			put(term, append(header, transactions[2*uint64(i)+n]...))
		}
	}
	return dir
}

// TestExportOverUpgrade: one file cannot hold two formats. A directory gets one
// file for each format. A refused export leaves no file.
func TestExportOverUpgrade(t *testing.T) {
	log, to := upgradedLog(t), t.TempDir()
	names := func() (names []string) {
		t.Helper()
		found, err := os.ReadDir(to)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			names = append(names, f.Name())
		}
		return names
	}
	file := filepath.Join(to, "all")
	code, out, errs := run(t, "log", "export", "--dir", log, "--to", file)
	if code != exitFailure || out != "" || !strings.Contains(errs, "--out-dir writes several (or --from 5, or --until-index 4)") || len(names()) > 0 {
		t.Fatalf("one file: %d, %q, %q, %v", code, out, errs, names())
	}
	code, _, errs = run(t, "log", "export", "--dir", log, "--out-dir", filepath.Join(to, "none"))
	if want := "there is no directory " + filepath.Join(to, "none") + ": make it first"; code != exitFailure || !strings.Contains(errs, want) {
		t.Errorf("no directory: %d, %q", code, errs)
	}
	// If one file cannot be written, the export fails, and the files before it are removed.
	second := filepath.Join(to, "export.000002")
	if err := os.WriteFile(second, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(t, "log", "export", "--dir", log, "--to-dir", to); code != exitFailure || !strings.Contains(errs, "exists: --force") || len(names()) != 1 {
		t.Fatalf("a name is taken: %d, %q, %v", code, errs, names())
	}
	if mine, err := os.ReadFile(second); err != nil || string(mine) != "mine" {
		t.Fatalf("what had the name: %q, %v", mine, err)
	}
	if code, out, errs := run(t, "log", "export", "--dir", log, "--to-dir", to, "--force"); code != exitOK || !strings.Contains(out, "4 transactions of entries 1-6") {
		t.Fatalf("several files: %d, %q, %q", code, out, errs)
	}
	if got := fmt.Sprint(names()); got != "[export.000001 export.000002]" {
		t.Fatal(got)
	}
	for n, version := range []string{"8.4.3", "9.7.4"} {
		raw, err := os.ReadFile(filepath.Join(to, names()[n]))
		if err != nil {
			t.Fatal(err)
		}
		fde, _, err := binlog.CutEvent(raw[len(binlog.Magic):])
		if err != nil {
			t.Fatal(err)
		}
		if format, err := binlog.ParseFormatDescription(fde); err != nil || format.ServerVersion != version {
			t.Errorf("file %d: %+v, %v", n+1, format, err)
		}
	}
	for _, part := range [][]string{{"--until-index", "4"}, {"--from", "5"}} {
		if code, _, errs := run(t, append([]string{"log", "export", "--dir", log, "--force", "--to", file}, part...)...); code != exitOK {
			t.Errorf("%v: %d, %s", part, code, errs)
		}
	}
}

// TestExportTakesNoOthersFile: --force replaces regular files only, not devices or links. The name of an unfinished
// file is nobody else's: not a user's, nor that of another export.
func TestExportTakesNoOthersFile(t *testing.T) {
	log, to := upgradedLog(t), t.TempDir()
	export := func(name string, more ...string) (code int, errs string) {
		code, _, errs = run(t, append([]string{"log", "export", "--dir", log, "--until-index", "3", "--out", filepath.Join(to, name)}, more...)...)
		return code, errs
	}
	if err := errors.Join(unix.Mkfifo(filepath.Join(to, "pipe"), 0o600), os.Symlink("all", filepath.Join(to, "link")), os.WriteFile(filepath.Join(to, "all.tmp"), []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"pipe": fs.ModeNamedPipe, "link": fs.ModeSymlink} {
		for _, more := range []string{"--force=false", "--force"} {
			code, errs := export(name, more)
			if there, err := os.Lstat(filepath.Join(to, name)); code != exitFailure || !strings.Contains(errs, name+" is no regular file") || err != nil || there.Mode().Type() != mode {
				t.Errorf("%s %s: exit code %d, %s, %v, %v", name, more, code, errs, err, there.Mode())
			}
		}
	}
	if code, errs := export("all"); code != exitOK {
		t.Fatal(code, errs)
	}
	if mine, err := os.ReadFile(filepath.Join(to, "all.tmp")); err != nil || string(mine) != "mine" {
		t.Errorf("what was there: %q, %v", mine, err)
	}
	// Two exports to the same name, one in the middle of the other.
	write := func(text string, within func()) {
		f := exportFiles{options: &exportOptions{to: filepath.Join(to, "two"), force: true}}
		defer f.discard()
		out, err := f.create(seglog.ExportFile{Number: 1})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(out, text)
		within()
		if err := f.finish(); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(filepath.Join(to, "two")); err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
	}
	write("first", func() { write("second", func() {}) })
	// An export that fails removes its own file only, not what has got its name meanwhile.
	f := exportFiles{options: &exportOptions{to: filepath.Join(to, "name")}}
	if _, err := f.create(seglog.ExportFile{Number: 1}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(to, "all"), filepath.Join(to, "name")); err != nil {
		t.Fatal(err)
	}
	f.discard()
	if _, err := os.Stat(filepath.Join(to, "name")); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(to, "*.*.tmp")); left != nil {
		t.Errorf("left: %v", left)
	}
}

func TestShortGTIDs(t *testing.T) {
	const a, b, c = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562", "5e11fa47-71ca-11e1-9e33-c80aa9429562"
	for text, want := range map[string]string{
		"":                                 "-",
		a + ":1-7":                         "3e11fa47…:1-7",
		a + ":1-7:9:12-13":                 "3e11fa47…:1-7:…:12-13",
		a + ":1," + b + ":2":               "3e11fa47…:1 4e11fa47…:2",
		a + ":1," + b + ":2," + c + ":3-4": "3e11fa47…:1 4e11fa47…:2 +1",
	} {
		set, err := gtid.ParseSet(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := shortGTIDs(set); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := shortGTIDs(nil); got != "-" {
		t.Errorf("no set: %s", got)
	}
}

// TestExportText: what an export says of the transactions before it.
func TestExportText(t *testing.T) {
	before, err := gtid.ParseSet("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-4")
	if err != nil {
		t.Fatal(err)
	}
	for want, set := range map[string]*gtid.Set{
		"no transactions come before them":          {},
		"they come after " + before.String() + "\n": before,
	} {
		var out strings.Builder
		err := printExported(&out, &seglog.Exported{GTIDs: &gtid.Set{}, Before: set}, nil, false)
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q, %v, want %q", out.String(), err, want)
		}
	}
}
