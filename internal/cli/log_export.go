package cli

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// exportOptions is what the command line says.
type exportOptions struct {
	source               logSource
	to, toDir            string
	from, untilIndex     uint64
	untilGTID, untilTime string
	force, asJSON        bool
}

func newLogExportCommand() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export --out FILE | --out-dir DIR",
		Short: "Write committed transactions as a binlog file",
		Long: `Writes the committed transactions of a node's log as a binlog file, byte for byte as their
primaries wrote them. The node may run or not. Use it for recovery to a point in time, on a
server that was restored from a backup:

  mysqlbinlog FILE | mysql

The server skips the transactions that it already has, by their GTIDs. The export begins
where the log begins: "quorate log ls" shows where that is.

Without a limit, everything up to the commit index on disk is written. If the node was
killed, its last transactions may be after that index; --uncommitted writes these, too.
--until-time ends before the first transaction that was committed later, by the clock of its
primary.

One binlog file can hold the transactions of one version of MySQL. If the log spans an
upgrade, use --out-dir: it writes several files, export.000001 and so on. Read them in this
order. The files are synced. An existing file is not overwritten without --force. Until the
end a file is called NAME.*.tmp: delete what a killed export has left there. With --out -
the result and errors go to stderr.`,
		Example: `  quorate log export --config node.toml --out all.binlog
  quorate log export --config node.toml --out - \
      --until-time "2026-03-01 11:59:59 UTC" | mysqlbinlog - | mysql
  quorate log export --dir /backup/log --out-dir restore \
      --until-gtid 3e11fa47-71ca-11e1-9e33-c80aa9429562:23`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := untilIndex(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.source.flags(cmd)
	o.source.uncommittedFlag(cmd)
	flags := cmd.Flags()
	oldNames(cmd, map[string]string{"to": "out", "to-dir": "out-dir"})
	flags.StringVar(&o.to, "out", "", "the `file` to write; - is stdout")
	flags.StringVar(&o.toDir, "out-dir", "", "the existing `directory` to write export.000001, … into")
	flags.Uint64Var(&o.from, "from", 0, "the `index` of the first entry")
	flags.Uint64Var(&o.untilIndex, "until-index", 0, "the `index` of the last entry")
	flags.StringVar(&o.untilGTID, "until-gtid", "", "the `GTID` of the last transaction")
	flags.StringVar(&o.untilTime, "until-time", "", "the last `time` of a commit: \"YYYY-MM-DD hh:mm:ss UTC\", or RFC 3339")
	flags.BoolVar(&o.force, "force", false, "write over existing files")
	flags.BoolVar(&o.asJSON, "json", false, "print the result in JSON")
	return cmd
}

// limits returns what the flags say, judged.
func (o *exportOptions) limits() (limits seglog.ExportOptions, err error) {
	limits = seglog.ExportOptions{From: o.from, UntilIndex: o.untilIndex}
	if (o.to == "") == (o.toDir == "") {
		return limits, errors.New("one of --out and --out-dir says where the binlog goes")
	}
	if o.to != "" && strings.Trim(o.to, "0123456789") == "" { // --to is the former name of --out, but reads like a limit
		return limits, fmt.Errorf("--out, once --to, names a file, and %s is a number: is --until-index meant? The file would be ./%[1]s", o.to)
	}
	if o.untilIndex != 0 && o.untilIndex < o.from {
		return limits, fmt.Errorf("--until-index %d is before --from %d", o.untilIndex, o.from)
	}
	if o.untilGTID != "" {
		if limits.UntilGTID, err = gtid.ParseGTID(o.untilGTID); err != nil {
			return limits, fmt.Errorf("--until-gtid must be a GTID, such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:23, not %q", o.untilGTID)
		}
	}
	if o.untilTime != "" {
		if limits.UntilTime, err = parseTime(o.untilTime); err != nil {
			return limits, fmt.Errorf("--until-time %q is no time, such as \"2026-03-01 11:59:59 UTC\"", o.untilTime)
		}
	}
	return limits, nil
}

// parseTime reads a time in UTC as quorate shows it, or in the form of RFC 3339. It refuses a time without a zone:
// quorate shows UTC, people think in local time, and an hour decides what is restored.
func parseTime(text string) (at time.Time, err error) {
	if at, err = time.Parse(units.TimeLayout, text); err != nil {
		at, err = time.Parse(time.RFC3339, text)
	}
	return at, err
}

func (o *exportOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	limits, err := o.limits()
	if err != nil {
		return usage(err)
	}
	toStdout := o.to == "-"
	if toStdout && isTerminal(stdout) {
		return usage(errors.New("a binlog is not for a terminal: --out must be a file, or stdout a pipe"))
	}
	in, err := o.source.open()
	if err != nil {
		return err
	}
	files := &exportFiles{options: o, stdout: stdout}
	defer files.discard()
	result, err := in.Export(ctx, limits, files.create)
	if err == nil && result.LastIndex < o.untilIndex && o.untilGTID == "" && o.untilTime == "" {
		err = fmt.Errorf("--until-index %d: what is committed ends at entry %d", o.untilIndex, result.LastIndex)
	}
	if err == nil {
		err = files.finish()
	}
	if err != nil {
		return err
	}
	if toStdout {
		stdout = stderr
	}
	return wasDone(printExported(stdout, result, files.names(), o.asJSON))
}

// exportResult is what `quorate log export --json` prints.
type exportResult struct {
	Files        []string   `json:"files"`
	FirstIndex   uint64     `json:"first_index"`
	LastIndex    uint64     `json:"last_index"`
	Transactions uint64     `json:"transactions"`
	GTIDs        string     `json:"gtids"`
	GTIDsBefore  string     `json:"gtids_before"`
	LastTime     *time.Time `json:"last_time,omitempty"`
	Bytes        int64      `json:"bytes"`
}

func printExported(out io.Writer, x *seglog.Exported, files []string, asJSON bool) error {
	if asJSON {
		result := exportResult{
			Files: files, FirstIndex: x.FirstIndex, LastIndex: x.LastIndex, Transactions: x.Transactions,
			GTIDs: x.GTIDs.String(), GTIDsBefore: x.Before.String(), Bytes: x.Bytes,
		}
		if x.Transactions > 0 {
			result.LastTime = &x.LastTime
		}
		return printJSON(out, result)
	}
	for _, name := range files {
		fmt.Fprintf(out, "wrote %s\n", name)
	}
	before := "no transactions come before them"
	if !x.Before.IsEmpty() {
		before = "they come after " + x.Before.String()
	}
	_, err := fmt.Fprintf(out, "%d transactions of entries %s, %s, last commit %s\nGTIDs %s\n%s\n",
		x.Transactions, indexRange(x.FirstIndex, x.LastIndex), units.Size(x.Bytes), commitTime(x.LastTime), cmp.Or(x.GTIDs.String(), "none"), before)
	if err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

const (
	exportFilePermissions = 0o640 // as the log's: it holds the users' data
	exportBufferBytes     = 1 << 20
)

// exportFiles are the files of an export. They get their final names at the end, all of
// them or none, so that nobody uses a part as the whole.
type exportFiles struct {
	options *exportOptions
	stdout  io.Writer
	files   []*exportFile
}

// exportFile is a file that is being written beside its name.
type exportFile struct {
	name string
	file *os.File
	out  *bufio.Writer
	// claimed is an empty file of ours that has the final name, so that the export does not overwrite another file in
	// the end; nil = there is none.
	claimed fs.FileInfo
}

func (f *exportFiles) names() (names []string) {
	for _, file := range f.files {
		names = append(names, file.name)
	}
	return names
}

func (f *exportFiles) create(x seglog.ExportFile) (io.Writer, error) {
	if f.options.toDir == "" && x.Number > 1 {
		return nil, fmt.Errorf("from here on MySQL %s wrote the log: one binlog file cannot hold two versions, --out-dir writes several (or --from %d, or --until-index %d)",
			x.ServerVersion, x.FirstIndex, x.FirstIndex-1)
	}
	if f.options.to == "-" {
		f.files = append(f.files, &exportFile{name: "-", out: bufio.NewWriterSize(f.stdout, exportBufferBytes)})
		return f.files[0].out, nil
	}
	name := f.options.to
	if f.options.toDir != "" {
		name = filepath.Join(f.options.toDir, fmt.Sprintf("export.%06d", x.Number))
	}
	// As root the rename would put a file in the place of a device.
	if there, err := os.Lstat(name); err == nil && !there.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file, and is not written over (--out - writes to stdout)", name)
	}
	file := &exportFile{name: name}
	if !f.options.force {
		claim, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, exportFilePermissions)
		if errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("%s exists: --force writes over it", name)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("there is no directory %s: make it first (mkdir)", filepath.Dir(name))
		}
		if err != nil {
			return nil, fmt.Errorf("create export: %w", err)
		}
		file.claimed, err = claim.Stat()
		if claim.Close(); err != nil {
			return nil, fmt.Errorf("create export: %w", err)
		}
	}
	f.files = append(f.files, file)
	var err error
	temporary := fmt.Sprintf("%s.%s.tmp", name, rand.Text()[:8]) // nobody else's
	if file.file, err = os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, exportFilePermissions); err != nil {
		return nil, fmt.Errorf("create export: %w", err)
	}
	file.out = bufio.NewWriterSize(file.file, exportBufferBytes)
	return file.out, nil
}

// finish makes the files durable and gives them their names.
func (f *exportFiles) finish() error {
	for _, file := range f.files {
		err := file.out.Flush()
		if err == nil && file.file != nil {
			err = file.file.Sync()
		}
		if err != nil {
			return fmt.Errorf("write export: %w", err)
		}
	}
	for _, file := range f.files {
		if file.file == nil {
			continue
		}
		if err := os.Rename(file.file.Name(), file.name); err != nil {
			return fmt.Errorf("name export: %w", err)
		}
		file.claimed = nil
		if err := file.file.Close(); err != nil {
			return fmt.Errorf("close export: %w", err)
		}
		file.file = nil
		if err := (vfs.OS{}).SyncDir(filepath.Dir(file.name)); err != nil {
			return fmt.Errorf("sync directory of export: %w", err)
		}
	}
	return nil
}

// discard removes the files that were not finished.
func (f *exportFiles) discard() {
	for _, file := range f.files {
		if file.file != nil {
			file.file.Close()
			os.Remove(file.file.Name())
		}
		if there, err := os.Lstat(file.name); err == nil && file.claimed != nil && os.SameFile(there, file.claimed) {
			os.Remove(file.name)
		}
	}
}
