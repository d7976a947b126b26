package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
	"github.com/quorate/quorate/internal/backup/ship"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/clock"
)

// archiveRetry is how long the archive waits after a failure.
const archiveRetry = 5 * time.Second

// archiveOpenEvery is the pause between tries to open the repository.
const archiveOpenEvery = 30 * time.Second

// isUsage tells whether an error means wrong usage or configuration: another try would end the same way.
func isUsage(err error) bool {
	e, ok := errors.AsType[*exitError](err)
	return ok && e.code == exitUsage
}

// archiveSayEvery is how often the same failure is logged.
const archiveSayEvery = 10 * time.Minute

// archiveTellEvery is how often the command tells the agent how far the archive is.
const archiveTellEvery = 5 * time.Second

// archiveLookEvery is how often the command looks for the newest full backup. With commands a look starts some processes.
const archiveLookEvery = 10 * time.Minute

// archiveLookTimeout bounds one such look.
const archiveLookTimeout = 30 * time.Second

func newArchiveCommand() *cobra.Command {
	var p backupPlace
	var once bool
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Keep the log beside full backups, as it grows",
		Long: `Stores the committed log of this host's node in the repository of [backup], piece by piece,
while the log grows. With a full backup and these pieces "quorate restore" can restore any
point in time after that backup.

A piece is stored once it has 64 MiB, or once backup.interval (1m by default) has passed. So
if the whole cluster is lost, about the last interval is not in the archive.

Run it as a service on two nodes or more: none stores what another one has stored, and the
archive has no gap when a node is lost. After a failure the command tries again by itself.
If there is no full backup, or if the log was purged before it was stored, it says so, and
waits until somebody takes a full backup. It ends with an error if the repository belongs to
another history.

It prints a line for each piece, and an object with --json. So "archive --once --json"
prints nothing if there is nothing new.`,
		Example: `  quorate archive
  quorate archive --once --directory /backup/quorate`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.archive(cmd.Context(), once, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	p.flags(cmd)
	cmd.Flags().BoolVar(&once, "once", false, "keep what is committed now, and end")
	return cmd
}

// archived is what "quorate archive --json" prints, a line for each piece.
type archived struct {
	Name  string    `json:"name"`
	First uint64    `json:"first"`
	Last  uint64    `json:"last"`
	Time  time.Time `json:"time"`
}

// archiveTeller tells the agent the figures of the archive for its metrics. If it cannot, the archive goes on.
type archiveTeller struct {
	p            *backupPlace
	store        repository.Store
	logger       *slog.Logger
	told, looked time.Time
}

func (t *archiveTeller) reached(ctx context.Context) func(uint64) {
	return func(index uint64) {
		if time.Since(t.told) >= archiveTellEvery {
			t.told = time.Now()
			t.warn(ctx, "tell the agent how far the archive is", t.p.control.ask(ctx, cluster.ArchiveReached, cluster.ArchiveReachedRequest{Index: index}, &struct{}{}))
		}
		if time.Since(t.looked) >= archiveLookEvery {
			t.looked = time.Now()
			t.warn(ctx, "tell the agent of the newest full backup", t.newest(ctx))
		}
	}
}

func (t *archiveTeller) warn(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		t.logger.Warn(what, "error", err)
	}
}

// newest tells the agent of the newest full backup that can be restored. It looks again each time: the backup that it
// found before may have been deleted.
func (t *archiveTeller) newest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, archiveLookTimeout) // nothing is shipped meanwhile
	defer cancel()
	m, ok, err := ship.Newest(ctx, t.store)
	if err != nil || !ok {
		return err
	}
	return t.p.tellFull(ctx, m.At)
}

// tellFull tells the agent when the newest full backup was taken.
func (p *backupPlace) tellFull(ctx context.Context, at time.Time) error {
	return p.control.ask(ctx, cluster.FullNewest, cluster.FullNewestRequest{At: at}, &struct{}{})
}

func (p *backupPlace) archive(ctx context.Context, once bool, out, errOut io.Writer) error {
	store, b, err := p.open()
	for err != nil && !once && !isUsage(err) { // its disk may be mounted later
		slog.New(slog.NewTextHandler(errOut, nil)).Warn("the repository cannot be opened: it is tried again", "every", archiveOpenEvery, "error", err)
		if clock.Sleep(ctx, clock.Machine{}, archiveOpenEvery) != nil {
			return nil // it was asked to end
		}
		store, b, err = p.open()
	}
	if err != nil {
		return err
	}
	agent, err := p.agent(b.CommandIdle)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(errOut, nil))
	var printed error
	shipped := false
	c := ship.Config{Store: store, Recipients: b.Recipients, Interval: b.Interval, Shipped: func(piece archive.Piece) {
		shipped = true
		printed = errors.Join(printed, show(out, p.control.asJSON, archived{piece.Name(), piece.First, piece.Last, piece.Time},
			fmt.Sprintf("entries %d to %d, %s\n", piece.First, piece.Last, orNoTime(piece.Time))))
	}}
	said, saidAt := "", time.Time{}
	c.Reached = (&archiveTeller{p: p, store: store, logger: logger}).reached(ctx)
	for {
		err := ship.Follow(ctx, c, agent, once)
		switch {
		case ctx.Err() != nil:
			return errors.Join(err, printed) // it was asked to end
		case once && err == nil && !shipped && !p.control.asJSON:
			return printText(out, "nothing is new: the archive has all that is committed\n")
		case once || errors.Is(err, ship.ErrHistory):
			return errors.Join(err, printed)
		}
		if text := err.Error(); text != said || time.Since(saidAt) > archiveSayEvery {
			said, saidAt = text, time.Now()
			logger.Warn("the archive stores nothing: it tries again", "every", archiveRetry, "error", err)
		}
		if err := clock.Sleep(ctx, clock.Machine{}, archiveRetry); err != nil {
			return nil // it was asked to end
		}
	}
}
