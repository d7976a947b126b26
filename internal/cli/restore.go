package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/agent"
	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/backup/ship"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/install"
)

// restoreOptions is what the command line says.
type restoreOptions struct {
	place                           backupPlace
	latest                          bool
	toTime, toGTID, before, keyFile string
	full                            string
	gap                             bool
	version                         string
}

func newRestoreCommand(deps Deps) *cobra.Command {
	o := restoreOptions{version: deps.Version}
	cmd := &cobra.Command{
		Use:   "restore --latest | --to-time T | --to-gtid G | --before-gtid G",
		Short: "Make the first node of a new cluster from a backup, as of a point in time",
		Long: `Makes the data directory of this node from a full backup, and its log from the archive, up
to a point in time. Use it when a cluster is lost, or to see old data again. The
configuration names this node as the only [[member]], and an empty data_dir. Afterwards
start its agent: it applies the log to the data, and opens for writes when it is through.
The other nodes join with "quorate node add", and copy the data.

The repository is not changed, nor is the cluster that was backed up. That cluster may be
running: give the new one other hosts. The new one begins a history of its own, so it needs
another repository for its own backups. EVENTs do not run there before "quorate cluster set
--events on", because they could delete what was restored.

--to-time ends before the first transaction that was committed later, by the clock of its
primary. --to-gtid ends with a transaction, --before-gtid before one: before a DROP TABLE
that should not have been. "quorate log dump" and "quorate log export" find it.

If the command was interrupted, run it again: it throws the unfinished data away, and begins
again. Run it as the agent's account, or as root.`,
		Example: `  quorate restore --latest
  quorate restore --to-time "2026-03-01 11:59:59 UTC" \
      --directory /backup/quorate
  quorate restore --identity backup.key \
      --before-gtid 3e11fa47-71ca-11e1-9e33-c80aa9429562:23`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := o.target()
			if err != nil {
				return usage(err)
			}
			cfg, err := loadConfig(o.place.control.path)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), cfg, target, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	configFlag(cmd, &o.place.control.path)
	o.place.placeFlag(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.latest, "latest", false, "restore all that there is")
	flags.StringVar(&o.toTime, "to-time", "", "the last `time` of a commit: \"YYYY-MM-DD hh:mm:ss UTC\", or RFC 3339")
	flags.StringVar(&o.toGTID, "to-gtid", "", "the `GTID` of the last transaction")
	flags.StringVar(&o.before, "before-gtid", "", "the `GTID` of the first transaction that is left out")
	flags.StringVar(&o.full, "full", "", "the `name` of the full backup (default: the newest that fits)")
	flags.BoolVar(&o.gap, "up-to-gap", false, "with --latest: if the log has a gap, restore what is before it")
	flags.StringVar(&o.keyFile, "identity", "", "the `file` with age's private key, if the backup is encrypted")
	flags.BoolVar(&o.place.control.asJSON, "json", false, "print the result in JSON")
	return cmd
}

// target returns the point in time, or in the log, that the flags name.
func (o *restoreOptions) target() (t archive.Target, err error) {
	said := 0
	for _, is := range []bool{o.latest, o.toTime != "", o.toGTID != "", o.before != ""} {
		if is {
			said++
		}
	}
	switch {
	case said != 1:
		return t, errors.New("one of --latest, --to-time, --to-gtid and --before-gtid says what to restore")
	case o.toTime != "":
		if t.Time, err = parseTime(o.toTime); err != nil {
			err = fmt.Errorf("--to-time %q is no time, such as \"2026-03-01 11:59:59 UTC\"", o.toTime)
		}
	case o.toGTID != "":
		if t.Through, err = gtid.ParseGTID(o.toGTID); err != nil {
			err = fmt.Errorf("--to-gtid must be a GTID, such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:23, not %q", o.toGTID)
		}
	case o.before != "":
		if t.Before, err = gtid.ParseGTID(o.before); err != nil {
			err = fmt.Errorf("--before-gtid must be a GTID, such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:23, not %q", o.before)
		}
	}
	return t, err
}

// restored is what "quorate restore --json" prints.
type restored struct {
	Full    string    `json:"full"`
	Index   uint64    `json:"index"`
	Time    time.Time `json:"time"`
	GTIDs   string    `json:"gtids"`
	Seconds float64   `json:"seconds"`
	// unread are the pieces of the log that were left out: others have their entries.
	unread []string
}

func (o *restoreOptions) run(ctx context.Context, cfg config.Config, target archive.Target, out, errOut io.Writer) error {
	store, _, err := o.place.open()
	if err != nil {
		return err
	}
	identities, err := repository.Identities(o.keyFile)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))
	began := time.Now()
	done, err := restoreInto(ctx, restoring{store, identities, cfg, target, logger, o.version, errOut, o.full, o.gap, false})
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("the restore was interrupted (%w): run the same command again, which begins from the start", context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	done.Seconds = time.Since(began).Seconds()
	return wasDone(show(out, o.place.control.asJSON, done, fmt.Sprintf("%s, up to entry %d, %s, is node %s of cluster %s now, in %s.\n"+
		"Start its agent. Its data are old until it has applied the log, which can take hours: then \"quorate status\" shows it as the primary.\n"+
		"Its EVENTs do not run before \"quorate cluster set --events on\".\n"+
		"Then let the other nodes join (quorate node add), and take a full backup into a repository of its own.\n",
		done.Full, done.Index, orNoTime(done.Time), cfg.Node, cfg.Cluster, shortDuration(time.Since(began)))))
}

// restoring is a restore.
type restoring struct {
	store      repository.Store
	identities []age.Identity
	cfg        config.Config
	target     archive.Target
	logger     *slog.Logger
	version    string
	errOut     io.Writer
	// full is the name of the full backup; "" = the newest that fits. gap: if the log has a gap, restore up to it.
	full string
	gap  bool
	// verify: restore the newest full backup, with the server variables of cfg instead of the backed-up cluster's.
	verify bool
}

// restoreInto makes the data directory of a configuration.
func restoreInto(ctx context.Context, o restoring) (done restored, err error) {
	contents, manifests, problems, err := ship.Usable(ctx, o.store)
	if err != nil {
		return done, err
	}
	for _, problem := range problems {
		o.logger.Warn("a full backup cannot be used", "problem", problem)
	}
	if o.full != "" {
		manifests = slices.DeleteFunc(manifests, func(m archive.Manifest) bool { return archive.FullName(m.At, m.Node) != o.full })
		if len(manifests) == 0 {
			return done, fmt.Errorf("full backup %s cannot be restored, or is not there: quorate backup list", o.full)
		}
	}
	full, err := archive.Choose(o.target, manifests)
	if err != nil {
		return done, err
	}
	done.Full = archive.FullName(full.At, full.Node)
	if newest := contents.Fulls[len(contents.Fulls)-1]; o.verify && done.Full != newest {
		return done, fmt.Errorf("the newest full backup cannot be restored: %s", problems[len(problems)-1])
	}
	_, last := contents.Chain(full.Begin.First)
	if newest := contents.Newest(); o.target.Latest() && last < newest.Last && !o.gap {
		return done, fmt.Errorf("the log has a gap from entry %d on, and goes to entry %d, %s: --to-time or --to-gtid restores a point before it; "+
			"--up-to-gap all before it", last+1, newest.Last, orNoTime(newest.Time))
	}
	if err := startsData(full.MySQL, o.cfg); err != nil {
		return done, err
	}
	r, err := agent.OpenRestoration(o.cfg, o.logger, o.version)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.Begin(whoAsks(), done.Full, full, o.target); err != nil {
		return done, err
	}
	chain := ship.NewChain(ctx, o.store, o.identities, full.ClusterID, contents, full.Begin.First)
	defer func() { _ = chain.Close() }()
	line := &progressLine{out: o.errOut, verb: "log"}
	log, err := r.MakeLog(o.target, chain, func(index uint64, _ time.Time) {
		line.draw(int64(index-full.Begin.First), int64(last-full.Begin.First))
	})
	line.clear()
	others := "other objects have its entries, so nothing is missing in this restore"
	if err != nil {
		others = "others were tried"
	}
	for _, unread := range chain.Unread() {
		o.logger.Warn("a piece of the log cannot be read: "+others, "error", unread)
		done.unread = append(done.unread, fmt.Sprintf("%v; %s", unread, others))
	}
	if err != nil {
		return done, fmt.Errorf("restore the log: %w", damagedLog(err))
	}
	if err := o.data(ctx, r, full); err != nil {
		return done, fmt.Errorf("restore the data: %w", damagedData(full, err))
	}
	record, err := r.Finish(o.verify)
	done.Index, done.Time, done.GTIDs = record.Index, log.Time, record.GTIDs
	return done, err
}

// startsData refuses data that a configuration's mysqld could not start, before anything is copied.
func startsData(version string, cfg config.Config) error {
	in, err := discover(cfg)
	if err != nil {
		return err
	}
	if why := wrongData(version, in.Version.String()); why != "" {
		return fmt.Errorf("the backup is of mysqld %s, and %s is %s: %s", version, in.Mysqld, in.Version, why)
	}
	return nil
}

// wrongData says why a mysqld does not start with data of the version of; "" = it does, or the backup does
// not say its version. Within a series with long-term support MySQL accepts data of a newer version, too.
func wrongData(of, mysqld string) string {
	a, err := install.ParseVersion(of)
	if err != nil {
		return ""
	}
	b, err := install.ParseVersion(mysqld)
	if err == nil && slices.Contains(longTerm(), install.Version{Major: a.Major, Minor: a.Minor}) && a.Major == b.Major && a.Minor == b.Minor {
		return ""
	}
	return wrongStep(of, mysqld)
}

// damagedData names the object of a full backup's data in an error that says that it is damaged, and what to do.
func damagedData(full archive.Manifest, err error) error {
	if ship.Damaged(err) {
		return fmt.Errorf("read %s: %w; --full restores another full backup (quorate backup list)", full.Data, err)
	}
	return err
}

// damagedLog says what to do about a damaged piece of the log.
func damagedLog(err error) error {
	if ship.Damaged(err) {
		return fmt.Errorf("%w; a restore to a point before it works, if a full backup ends before that. Or move this object to another place: then --latest --up-to-gap restores all before it", err)
	}
	return err
}

// data unpacks the data of the full backup.
func (o restoring) data(ctx context.Context, r *agent.Restoration, full archive.Manifest) error {
	object, err := o.store.Get(ctx, full.Data)
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }()
	plain, err := repository.Unseal(object, o.identities)
	if err != nil {
		return err
	}
	defer func() { _ = plain.Close() }()
	line := &progressLine{out: o.errOut, verb: "data"}
	defer line.clear()
	err = r.MakeData(ctx, plain, func(bytes int64) { line.draw(bytes, max(full.DataBytes, bytes)) })
	if err == nil {
		_, err = io.Copy(io.Discard, plain) // only the end shows whether the backup was whole
	}
	return cmp.Or(err, ctx.Err())
}
