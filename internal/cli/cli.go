package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysqld"
)

// Exit codes (see the package comment).
const (
	exitOK        = 0
	exitFailure   = 1
	exitUsage     = 2
	exitNoPrimary = 3
	exitUncertain = 4
	// exitUnknown: did-commit has no answer.
	exitUnknown = 3
)

// Deps is what the commands need from outside of this package.
type Deps struct {
	// Version is the program's version.
	Version string
	// RunAgent runs a node until ctx ends or it fails.
	RunAgent func(ctx context.Context, cfg config.Config, logger *slog.Logger, version string) error
	// Exec replaces this process with another program. It returns only on
	// failure.
	Exec func(path string, argv, env []string) error
}

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as one of wrong usage or configuration.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

// Main runs the command that args (without the program's name) ask for and
// returns the exit code.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer, deps Deps) int {
	root := newRootCommand(deps)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	// What goes wrong before a command begins is wrong usage.
	began := false
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	for _, e := range config.Problems(err) {
		for line := range strings.Lines(e.Error()) {
			fmt.Fprintf(stderr, "quorate: %s\n", strings.TrimSpace(line))
		}
	}
	if !began {
		fmt.Fprintf(stderr, "quorate: see `%s --help`\n", cmd.CommandPath())
		return exitUsage
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitFailure
}

func newRootCommand(deps Deps) *cobra.Command {
	root := &cobra.Command{
		Use:   "quorate",
		Short: "High availability for stock MySQL, with no committed transaction lost",
		Long: `quorate runs beside each mysqld of a cluster. The agents form one Raft group
whose log is the binlog: a client gets OK only after a majority of the nodes has
its transaction on disk, and a failed primary is replaced in about a second.

Exit codes: 0 success, 1 failure, 2 wrong usage or a bad configuration,
3 there is no primary or leader, 4 it is not known whether a change was made.`,
		Example: `  quorate config example > node.toml
  quorate run --config node.toml
  quorate status --config node.toml
  quorate demo`,
		Args:          cobra.NoArgs,
		RunE:          showHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRunCommand(deps), newStatusCommand(), newMySQLCommand(deps), newLogCommand(), newConfigCommand(),
		newNodeCommand(), newClusterCommand(), newMaintenanceCommand(), newAuditCommand(), newSwitchoverCommand(), newRestartMysqldCommand(),
		newFenceCommand(), newUnfenceCommand(), newDidCommitCommand(), newDemoCommand(), newVersionCommand(deps))
	return root
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// configFlag adds --config.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", "", "the node's configuration `file` (TOML)")
	// It cannot fail: the flag exists.
	_ = cmd.MarkFlagFilename("config", "toml")
}

// loadConfig reads and judges a configuration file.
func loadConfig(path string) (config.Config, error) {
	if path == "" {
		return config.Config{}, usage(errors.New("--config is missing: it names the node's configuration file"))
	}
	c, err := config.Load(path)
	if err == nil {
		err = c.Validate()
	}
	if err == nil {
		err = checkVariables(path, c)
	}
	return c, usage(err)
}

// checkVariables refuses server variables that are not the operator's to set,
// one line for each.
func checkVariables(path string, c config.Config) error {
	var errs []error
	for _, err := range config.Problems(mysqld.CheckVariables(c.MySQL.Variables)) {
		errs = append(errs, fmt.Errorf("config %s: [mysql.variables]: %w", path, err))
	}
	return errors.Join(errs...)
}
