package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/mysqld"
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

// exitError is an error with an exit code of its own. err is nil if the command has already printed
// all that there is to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as wrong usage or wrong configuration.
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
	out := &output{Writer: stdout}
	root.SetOut(out)
	root.SetErr(stderr)
	// An error before a command begins is wrong usage.
	began := false
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		err := noEmptyValues(cmd)
		began = err == nil
		return err
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	code := exitFailure
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
		if e.err == nil {
			return code
		}
	}
	if !began {
		code = exitUsage
	}
	if (isSet(cmd, "json") || !began && wantsJSON(cmd, args)) && !out.written && !dataToStdout(cmd, args) { // a program that reads JSON gets an object
		// In one line, because some commands print one object per line. stderr gets the error, too.
		_ = json.NewEncoder(stdout).Encode(newFailure(cmd, err, code))
	}
	for _, e := range config.Problems(err) {
		for line := range strings.Lines(e.Error()) {
			fmt.Fprintf(stderr, "quorate: %s\n", strings.TrimSpace(line))
		}
	}
	if !began {
		fmt.Fprintf(stderr, "quorate: see `%s --help`\n", cmd.CommandPath())
	}
	return code
}

// output notes whether anything was written to it.
type output struct {
	io.Writer
	written bool
}

func (o *output) Write(p []byte) (int, error) {
	o.written = true
	return o.Writer.Write(p)
}

func newFailure(cmd *cobra.Command, err error, code int) control.Failure {
	f := control.Failure{Error: strings.ReplaceAll(err.Error(), "\n", "; "), ExitCode: code}
	if code == exitUsage {
		f.Code = control.CodeInvalid
	}
	if e, ok := errors.AsType[*control.Error](err); ok {
		f.Code = e.Code
		if isSet(cmd, "dry-run") && (e.Code == control.CodeInvalid || e.Code == control.CodeFailed) {
			f.Possible = new(false)
		}
	}
	return f
}

// wantsJSON tells whether arguments that could not be parsed contain --json, and the command
// has that flag.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return cmd.Flags().Lookup("json") != nil && slices.Contains(args, "--json")
}

// dataToStdout tells whether stdout is for a binlog: an error would damage it, or be read as one.
func dataToStdout(cmd *cobra.Command, args []string) bool {
	return cmd.Flags().Lookup("out") != nil && slices.ContainsFunc(args, func(arg string) bool { return arg == "-" || strings.HasSuffix(arg, "=-") })
}

// isSet tells whether a command has a flag, and it was given.
func isSet(cmd *cobra.Command, flag string) bool {
	f := cmd.Flags().Lookup(flag)
	return f != nil && f.Value.String() == "true"
}

func newRootCommand(deps Deps) *cobra.Command {
	root := &cobra.Command{
		Use:   "quorate",
		Short: "High availability for stock MySQL, with no committed transaction lost",
		Long: `quorate runs beside each mysqld of a cluster. The agents form one Raft group
whose log is the binlog: a client gets OK only after a majority of the nodes has
its transaction on disk, and a failed primary is replaced in about a second.`,
		Example: `  quorate config example > node.toml
  quorate run --config node.toml
  quorate status --config node.toml
  quorate demo`,
		Args:          noArgs,
		RunE:          showHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Version = newVersionInfo(deps).String()
	root.SetVersionTemplate("{{.Version}}")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelpCommand())
	root.AddCommand(newRunCommand(deps), newStatusCommand(), newMySQLCommand(deps), newLogCommand(), newConfigCommand(),
		newNodeCommand(), newClusterCommand(), newMaintenanceCommand(), newAuditCommand(), newHistoryCommand(), newSwitchoverCommand(), newRestartMysqldCommand(),
		newUpgradeCommand(), newFenceCommand(), newUnfenceCommand(), newInitCommand(), newKeyCommand(), newSecretsCommand(), newDidCommitCommand(), newRecoverCommand(deps), newAdoptCommand(deps), newFollowCommand(), newCutoverCommand(), newSiteCommand(), newBackupCommand(deps), newArchiveCommand(), newRestoreCommand(deps), newDemoCommand(), newVersionCommand(deps), newDoctorCommand(), newVariablesCommand(), newTopCommand(), newSessionsCommand(), newExitCodesTopic())
	root.InitDefaultCompletionCmd()
	describeCompletion(root)
	complete(root)
	fitHelp(root)
	showRootHelp(root)
	return root
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// configFlag adds --config.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", "", "the node's configuration `file` (TOML)")
	// It cannot fail: the flag exists.
	_ = cmd.MarkFlagFilename("config", "toml")
}

// defaultConfig is the configuration file if none is named. configVariable is the environment variable
// that names another file.
const (
	defaultConfig  = "/etc/quorate/node.toml"
	configVariable = "QUORATE_CONFIG"
)

// errTwoTargets refuses two flags that contradict each other.
var errTwoTargets = errors.New("--addr and --config both say where to ask: use one of them")

// configPath returns the path of the configuration file to use; "" = there is none.
func configPath(path string) string {
	return cmp.Or(path, os.Getenv(configVariable), ifPresent(defaultConfig))
}

// ifPresent returns the path of a file, or "" if there is none. A file that cannot be read is present: without it a
// command would take the defaults for what the operator has set.
func ifPresent(path string) string {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return path
}

// agentConfig returns the configuration that says where the agent is: the defaults
// if there is no file. Mistakes elsewhere in the file do not matter here.
func agentConfig(path string) (config.Config, error) {
	if configPath(path) == "" {
		return config.Default(), nil
	}
	c, err := config.LoadPlaces(configPath(path))
	return c, usage(err)
}

// namedConfig is configPath, with an error if there is no file.
func namedConfig(path string) (string, error) {
	if path = configPath(path); path == "" {
		return "", usage(fmt.Errorf("--config is missing: it names the node's configuration file, and there is no %s", defaultConfig))
	}
	return path, nil
}

// loadConfig reads and checks a configuration file.
func loadConfig(path string) (config.Config, error) {
	path, err := namedConfig(path)
	if err != nil {
		return config.Config{}, err
	}
	c, err := config.Load(path)
	if err == nil {
		err = c.Validate()
	}
	if err == nil {
		err = checkVariables(c)
	}
	return c, usage(err)
}

// checkVariables refuses server variables that the operator may not set, with one line
// for each.
func checkVariables(c config.Config) error {
	wrong := map[string]string{}
	for name, value := range c.MySQL.Variables {
		if err := mysqld.CheckVariables(map[string]string{name: value}); err != nil {
			wrong["mysql.variables."+name] = fmt.Sprintf("[mysql.variables]: %v", err)
		}
	}
	return c.Wrong(wrong)
}
