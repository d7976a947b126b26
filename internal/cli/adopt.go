package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/agent"
	"github.com/quorate/quorate/internal/agent/founding"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
)

// adoptOptions is what the command line says.
type adoptOptions struct {
	path                string
	check, undo, asJSON bool
	version             string
}

func newAdoptCommand(deps Deps) *cobra.Command {
	o := adoptOptions{version: deps.Version}
	cmd := &cobra.Command{
		Use:   "adopt DATADIR [--check] | adopt --undo",
		Short: "Make a server's data directory this node's, in place",
		Long: `Makes the data directory of an existing MySQL server the first node of a new cluster. No
data are copied: the directory is renamed, to a place below data_dir on the same file
system. So it takes seconds, whatever the size of the data.

Before: the server has GTIDs on, and was shut down cleanly. node.toml names this node as the
only [[member]], and an empty data_dir. Afterwards the other nodes join ("quorate node
add"), and copy the data.

--check only looks. The server must be shut down for this, too. mysqld is started on the
data, read-only and without network. The command prints what forbids the adoption ("fail")
and what will be different afterwards ("warn"). Without --check it looks at the same things
first, and does nothing if something fails.

If the command is interrupted, run it again: it goes on. --undo puts everything back, also
after an interruption, until the agent has started mysqld for the first time: that start
makes quorate's accounts, and locks root. If that start failed before it changed anything,
--undo still works.

Run it as root if the agent's account does not own the directory above DATADIR. The files
keep their owner.

Exit code 0: it was done, or with --check: it could be done. 1: something forbids it, or it
failed. 2: wrong usage, or a mistake in the configuration.`,
		Example: `  quorate adopt /var/lib/mysql --check
  quorate adopt /var/lib/mysql
  quorate adopt --undo`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.undo {
				return noArgs(cmd, args)
			}
			return oneArg("DATADIR")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.undo && o.check {
				return usage(errors.New("--check and --undo exclude each other: use one of them"))
			}
			cfg, err := loadConfig(o.path)
			if err != nil {
				return err
			}
			if o.undo {
				return o.runUndo(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return o.run(cmd.Context(), cfg, args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	configFlag(cmd, &o.path)
	cmd.Flags().BoolVar(&o.check, "check", false, "only look, and change nothing")
	cmd.Flags().BoolVar(&o.undo, "undo", false, "put the data back where they were")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print what was found and done in JSON")
	return cmd
}

// adopted is what "quorate adopt --json" prints.
type adopted struct {
	*agent.AdoptionReport
	// Done says what was done; "" = nothing.
	Done string `json:"done,omitempty"`
}

func (o *adoptOptions) run(ctx context.Context, cfg config.Config, from string, out, errOut io.Writer) (err error) {
	logger := adoptLogger(errOut)
	if done, err := o.takeUp(ctx, cfg, from, logger, out); done || err != nil {
		return err
	}
	ad, err := agent.OpenAdoption(ctx, cfg, from, logger, o.version)
	if err != nil {
		return err
	}
	defer ad.Close()
	report := ad.Report()
	result := adopted{AdoptionReport: &report}
	if !o.asJSON {
		if err := printText(out, adoptText(report)); err != nil {
			return err
		}
	}
	if report.Result != cluster.CheckFail && !o.check {
		r, err := ad.Do(whoAsks(), time.Now())
		if err != nil {
			return adoptRemedy(err)
		}
		result.Done = adoptedText(cfg, r)
	}
	err = show(out, o.asJSON, result, verdictText(result, o.check))
	if result.Done != "" {
		return wasDone(err)
	}
	if err == nil && report.Result == cluster.CheckFail {
		err = &exitError{code: exitFailure}
	}
	return err
}

// adoptRemedy says what to do after an error in the middle of an adoption. Beside an agent neither command would work.
func adoptRemedy(err error) error {
	if errors.Is(err, agent.ErrInUse) {
		return err
	}
	return fmt.Errorf("%w; run the same command again, or \"quorate adopt --undo\"", err)
}

func adoptLogger(errOut io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// takeUp goes on with what was interrupted; done tells whether there was something.
func (o *adoptOptions) takeUp(ctx context.Context, cfg config.Config, from string, logger *slog.Logger, out io.Writer) (done bool, err error) {
	r, phase, err := agent.AdoptionOf(cfg)
	if err != nil || phase == founding.None {
		return false, err
	}
	if phase == founding.Undoing {
		return true, fmt.Errorf("undoing the adoption of %s was interrupted: run \"quorate adopt --undo\" again", r.From)
	}
	if asked, err := filepath.Abs(from); err != nil || asked != r.From {
		if real, err := filepath.EvalSymlinks(filepath.Dir(asked)); err != nil || filepath.Join(real, filepath.Base(asked)) != r.From {
			return true, fmt.Errorf("data directory %s belongs to an adoption of %s: name that directory, or undo the adoption first (quorate adopt --undo)", cfg.DataDir, r.From)
		}
	}
	if o.check {
		return true, fmt.Errorf("%s was adopted, or that was interrupted: there is nothing to check", r.From)
	}
	if phase == founding.Done {
		err := agent.AdoptionUnchanged(cfg, r)
		if errors.Is(err, founding.ErrStarted) || errors.Is(err, founding.ErrRebuilt) {
			return true, o.printDone(out, fmt.Sprintf("%s was adopted as node %s of cluster %s at %s by %s, and this node has begun since: nothing was done",
				r.From, cfg.Node, cfg.Cluster, units.Time(r.At), r.By))
		}
		if err != nil {
			return true, err
		}
	}
	if phase == founding.Underway {
		moved, err := agent.AdoptionMoved(cfg, r)
		if err != nil {
			return true, err
		}
		if !moved { // its server may have run since: what was found then says nothing
			_, err := agent.UndoAdoption(ctx, cfg, logger, o.version)
			return err != nil, err
		}
	}
	if r, err = agent.FinishAdoption(cfg, logger); err != nil {
		return true, err
	}
	return true, o.printDone(out, adoptedText(cfg, r))
}

func (o *adoptOptions) runUndo(ctx context.Context, cfg config.Config, out, errOut io.Writer) error {
	_, phase, err := agent.AdoptionOf(cfg)
	if err != nil {
		return err
	}
	if phase == founding.None {
		return fmt.Errorf("nothing was adopted into data directory %s: there is nothing to undo", cfg.DataDir)
	}
	r, err := agent.UndoAdoption(ctx, cfg, adoptLogger(errOut), o.version)
	if err != nil {
		return err
	}
	return o.printDone(out, fmt.Sprintf("%s is as it was before: start its mysqld as before", r.From))
}

func (o *adoptOptions) printDone(out io.Writer, done string) error {
	return wasDone(show(out, o.asJSON, adopted{Done: done}, done+"\n"))
}

// adoptText shows what was found: a line for each subject, and what to do below it.
func adoptText(r agent.AdoptionReport) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s, to become node %s of cluster %s\n\n", r.From, units.Size(r.Bytes), r.Node, r.Cluster)
	text.WriteString(checksText(r.Checks))
	if r.Executed == "" {
		text.WriteString("\nmysqld was not started on the data, so their content was not looked at\n")
	} else {
		fmt.Fprintf(&text, "\ngtid_executed: %s\n", oneLine(r.Executed))
	}
	return text.String() + "\n"
}

// verdictText says what follows.
func verdictText(r adopted, check bool) string {
	switch {
	case r.Done != "":
		return r.Done + "\n"
	case r.Result == cluster.CheckFail:
		return "it cannot be adopted as it is: nothing was done\n"
	case check:
		return "it can be adopted: run the same command without --check\n"
	}
	return ""
}

// adoptedText says what was done, and what comes next.
func adoptedText(cfg config.Config, r founding.Record) string {
	return fmt.Sprintf("%s is node %s of cluster %s now. Start its agent; then let the other nodes join (quorate node add). "+
		"Until the agent starts, \"quorate adopt --undo\" puts it back.", r.From, cfg.Node, cfg.Cluster)
}
