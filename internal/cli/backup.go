package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/backup/ship"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/vfs"
)

// backupPlace says where backups are: by flags, or else by the configuration.
type backupPlace struct {
	control   controlOptions
	directory string
}

func (p *backupPlace) flags(cmd *cobra.Command) {
	p.control.flags(cmd)
	p.placeFlag(cmd)
}

func (p *backupPlace) placeFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&p.directory, "directory", "d", "", "the `directory` of the backups (default: [backup] of the configuration)")
	_ = cmd.MarkFlagDirname("directory") // the flag exists
}

// open opens the repository.
func (p *backupPlace) open() (repository.Store, config.Backup, error) {
	var b config.Backup
	if path := configPath(p.control.path); path != "" {
		c, err := loadConfig(path)
		if err != nil {
			return nil, b, err
		}
		b = c.Backup
	} else {
		b = config.Default().Backup
	}
	if p.directory != "" {
		b.Directory = p.directory
	}
	if b.Directory != "" {
		store, err := repository.NewDirectory(vfs.OS{}, b.Directory)
		return store, b, err
	}
	if b.ListCommand == "" {
		return nil, b, usage(errors.New("there is no place for backups: set directory in [backup] of the configuration, or use --directory DIR"))
	}
	commands := repository.Commands{Put: b.PutCommand, Get: b.GetCommand, List: b.ListCommand, Delete: b.DeleteCommand, Idle: b.CommandIdle}
	return repository.NewCommands(commands), b, nil
}

func newBackupCommand(deps Deps) *cobra.Command {
	var p backupPlace
	isNew := false
	cmd := &cobra.Command{
		Use:   "backup [--new]",
		Short: "Take a full backup, list backups, delete old ones",
		Long: `Takes a full backup of this host's node: a copy of its mysqld's data, and the log that
belongs to the copy. The node serves meanwhile. Take backups on a replica: on the primary
the copy competes with the clients. mysqld writes the copy beside its data, so until the end
the disk needs room for the data twice.

The backup goes where [backup] of the configuration says: into a directory, or through
commands. It is compressed, and encrypted if [backup] has recipients.

A full backup alone restores the moment at which it was taken. "quorate archive" stores the
log from there on: then "quorate restore" can restore any later point in time.

The first backup of a repository needs --new. Without it an empty repository is refused,
because its disk may not be mounted.

Only root and the agent's own account may take a backup, because it holds all data.`,
		Example: `  quorate backup
  quorate backup --new --directory /backup/quorate
  quorate backup list
  quorate backup prune`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.take(cmd.Context(), isNew, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	p.flags(cmd)
	cmd.Flags().BoolVar(&isNew, "new", false, "this is the first backup: the repository may be empty")
	cmd.AddCommand(newBackupListCommand(), newBackupPruneCommand(), newBackupVerifyCommand(deps))
	return cmd
}

// lagPatience is how long a backup waits if its node lags behind the part of the log that another node has stored.
const lagPatience = time.Minute

// backupTaken is what "quorate backup --json" prints.
type backupTaken struct {
	Name    string    `json:"name"`
	Node    string    `json:"node"`
	Bytes   int64     `json:"bytes"`
	Files   int       `json:"files"`
	Index   uint64    `json:"index"`
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"`
	// FromPrimary: the node was the primary when it was asked.
	FromPrimary bool `json:"from_primary"`
}

func (p *backupPlace) take(ctx context.Context, isNew bool, out, errOut io.Writer) error {
	store, b, err := p.open()
	if err != nil {
		return err
	}
	agent, err := p.agent(b.CommandIdle)
	if err != nil {
		return err
	}
	began := time.Now()
	shown := &copyShown{out: errOut, line: progressLine{out: errOut, verb: "copy"}}
	name, m, err := ship.Full(ctx, ship.Config{
		Store: store, Recipients: b.Recipients, Interval: b.Interval, New: isNew, Patience: lagPatience, Again: shown.again,
	}, agent, shown)
	shown.line.clear()
	if err != nil {
		return fmt.Errorf("the backup failed, and does not count: %w", err)
	}
	if err := p.tellFull(ctx, m.At); err != nil { // the backup counts all the same
		_ = printText(errOut, fmt.Sprintf("the backup is done, but the agent does not know of it, nor do its metrics: %v\n", err))
	}
	done := backupTaken{name, m.Node, m.Bytes, len(m.Files), m.End.Index, m.Time, time.Since(began).Seconds(), m.FromPrimary}
	return wasDone(show(out, p.control.asJSON, done, fmt.Sprintf("full backup %s of node %s: %s in %s, in %s, with the log to entry %d, %s\n", name, m.Node,
		units.Size(m.Bytes), units.Count(len(m.Files), "file", "files"), shortDuration(time.Since(began)), m.End.Index, orNoTime(m.Time))))
}

func orNoTime(at time.Time) string {
	if at.IsZero() {
		return "without a transaction"
	}
	return units.Time(at)
}

// copyShown shows how far a full backup is.
type copyShown struct {
	out   io.Writer
	mu    sync.Mutex // held while something is shown: the log has a goroutine of its own
	line  progressLine
	total int64
}

// again says that a step failed, and is tried again.
func (s *copyShown) again(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.clear()
	slog.New(slog.NewTextHandler(s.out, nil)).Warn("a step of the backup failed: it is tried again", "for", ship.StorePatience, "error", err)
}

// Begun implements ship.Progress.
func (s *copyShown) Begun(start archive.Start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total = start.DataBytes
	if start.FromPrimary {
		_ = printText(s.out, fmt.Sprintf("node %s is the primary: the copy reads all of its data beside the clients' work. Take backups on a replica\n", start.Node))
	}
	if isTerminal(s.out) {
		_ = printText(s.out, fmt.Sprintf("mysqld of node %s copies its data, about %s\n", start.Node, units.Size(start.DataBytes)))
	}
}

// Copied implements ship.Progress.
func (s *copyShown) Copied(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.draw(bytes, max(s.total, bytes))
}

func newBackupListCommand() *cobra.Command {
	var p backupPlace
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the full backups, and what they can bring back",
		Long: `Lists the full backups of the repository. RESTORES FROM and TO are the first and the last
point in time that can be restored with the backup, without a gap in the log. PROBLEM says
why a backup cannot be used.`,
		Example: `  quorate backup list
  quorate backup list --directory /backup/quorate --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, _, err := p.open()
			if err != nil {
				return err
			}
			all, err := ship.Fulls(cmd.Context(), store)
			if len(all) > 0 || err == nil {
				err = cmp.Or(show(cmd.OutOrStdout(), p.control.asJSON, all, fullsText(all)), err)
			}
			return err
		},
	}
	p.flags(cmd)
	return cmd
}

// fullsText is the table of the full backups.
func fullsText(all []ship.FullBackup) string {
	if len(all) == 0 {
		return "there is no full backup\n"
	}
	var rows [][]string
	for _, f := range all {
		size, from, to := units.Size(f.Bytes), orNoTime(f.From), orNoTime(f.To)
		if f.Node == "" { // it has no manifest that could be read
			from, to = "-", "-"
		}
		if f.Node == "" && f.Bytes == 0 {
			size = "-"
		}
		rows = append(rows, []string{f.Name, cmp.Or(f.Node, "-"), size, from, to, cmp.Or(oneLine(f.Problem), "-")})
	}
	return table("FULL BACKUP\tNODE\tSIZE\tRESTORES FROM\tTO\tPROBLEM", rows)
}

func newBackupPruneCommand() *cobra.Command {
	var p backupPlace
	var keep int
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune [--keep N]",
		Short: "Delete the oldest full backups, and the log that only they need",
		Long: `Deletes the oldest full backups, and the part of the log that only they need. The newest
full backups that can be restored stay: as many as --keep says, else as backup.keep_full of
the configuration says. The newest are those that go furthest in the log, whatever the clocks
said. A backup that cannot be restored does not count, and one that ends behind all of the
log that is there neither. If the repository has backups of another cluster, nothing is
deleted. What interrupted backups have left is deleted, too. If [backup] has commands but no
delete_command, the command says so, and ends well.

If an object cannot be deleted, the command deletes the others, says which, and ends with an
error. It ends after 4 hours, and the next one goes on.

The command does not ask. Run it with --dry-run first.`,
		Example: `  quorate backup prune --dry-run
  quorate backup prune --keep 14`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep < 0 || keep == 0 && cmd.Flags().Changed("keep") {
				return usage(fmt.Errorf("--keep %d: keep one at least", keep))
			}
			store, b, err := p.open()
			if err != nil {
				return err
			}
			if b.Directory == "" && b.DeleteCommand == "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "nothing is deleted: backup.delete_command is not set. Full backups stay until the store itself deletes them; by age alone it deletes the last good one, too")
				return show(cmd.OutOrStdout(), p.control.asJSON, map[string]any{"dry_run": dryRun, "deleted": []string{}}, "")
			}
			names, apart, err := ship.Prune(cmd.Context(), store, cmp.Or(keep, b.KeepFull), dryRun)
			for _, text := range apart {
				fmt.Fprintln(cmd.ErrOrStderr(), text)
			}
			if err != nil && len(names) == 0 {
				return err
			}
			shown := show(cmd.OutOrStdout(), p.control.asJSON, map[string]any{"dry_run": dryRun, "deleted": names}, prunedText(names, dryRun))
			if !dryRun {
				shown = wasDone(shown)
			}
			return cmp.Or(err, shown) // what was deleted is said, also beside an error
		},
	}
	p.flags(cmd)
	cmd.Flags().IntVar(&keep, "keep", 0, "how many full backups stay (default: backup.keep_full of the configuration, or 7)")
	dryRunFlag(cmd, &dryRun)
	return cmd
}

func prunedText(names []string, dryRun bool) string {
	verb := "deleted"
	if dryRun {
		verb = "would be deleted"
	}
	return strings.Join(append(slices.Clone(names), fmt.Sprintf("%s %s\n", units.Count(len(names), "object", "objects"), verb)), "\n")
}
