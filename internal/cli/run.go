package cli

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/agent"
	"github.com/quorate/quorate/internal/agent/keys"
	"github.com/quorate/quorate/internal/config"
)

func newRunCommand(deps Deps) *cobra.Command {
	var path, format string
	var bootstrap bool
	cmd := &cobra.Command{
		Use:   "run [--config FILE] [--bootstrap]",
		Short: "Run this node: its agent and its mysqld",
		Long: `Runs the node that the configuration file describes, until SIGTERM or SIGINT. Then a primary
hands leadership to another node, mysqld is stopped, and the command ends. A second signal
ends it at once, and the kernel ends its mysqld with it: no acknowledged transaction is lost
by that.

The nodes of a new cluster begin once all of them have started: each waits until every other
node has said that its data directory is empty, too.

With --bootstrap a node begins without the nodes that do not answer, for instance because
their hosts do not exist yet. Give it to each node of a majority, once. If the [[member]]
list has only one node, the cluster begins only with --bootstrap. Start it as the agent's
account, not as root: runuser -u mysql -- quorate run --bootstrap. Never give it to a node
whose disk may only be missing: an existing cluster would begin again, empty.

The log goes to stderr. With --log-format journal each line begins with its priority, and
has no time, because systemd's journal has it. "journalctl -p warning -u quorate" then shows
warnings and errors.

Exit code 0: it was stopped by a signal. 1: it failed. 2: the configuration is wrong.`,
		Example: `  quorate run --config /etc/quorate/node.toml
  quorate run --config node.toml --log-format json 2> quorate.log`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(path)
			if err != nil {
				return err
			}
			if path, err = namedConfig(path); err != nil {
				return err
			}
			if text := cmp.Or(changeable(path, os.Geteuid()), hookChangeable(cfg, os.Geteuid())); text != "" {
				return usage(&config.Problem{File: path, Text: text})
			}
			logger := newLogger(cmd.ErrOrStderr(), format, cfg.LogLevel)
			warnings := cfg.Warnings()
			if text := readableHash(path, cfg); text != "" {
				warnings = append(warnings, text)
			}
			for _, text := range warnings {
				logger.Warn("config: " + text)
			}
			cfg.Bootstrap = bootstrap
			err = deps.RunAgent(cmd.Context(), cfg, logger, deps.Version)
			if errors.Is(err, agent.ErrNoBootstrap) || errors.Is(err, keys.ErrKey) {
				return usage(err)
			}
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&bootstrap, "bootstrap", false, "begin a new cluster without the members that do not answer")
	format = formatText
	wordFlag(cmd, &format, "log-format", "`format` of the log: text, json or journal", formatText, formatJSON, formatJournal)
	return cmd
}

// The forms of the log.
const (
	formatText    = "text"
	formatJSON    = "json"
	formatJournal = "journal"
)

func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case formatJSON:
		return slog.New(slog.NewJSONHandler(w, options))
	case formatJournal:
		options.ReplaceAttr = withoutTime
		return slog.New(slog.NewTextHandler(journal{w}, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// journal writes text for the service manager, with the priorities of sd-daemon(3), by which journalctl filters.
type journal struct{ to io.Writer }

// Write writes one line, as slog's handlers do.
func (j journal) Write(line []byte) (int, error) {
	priority := "<6>"
	switch level, _, _ := bytes.Cut(line, []byte(" ")); string(level) {
	case "level=DEBUG":
		priority = "<7>"
	case "level=WARN":
		priority = "<4>"
	case "level=ERROR":
		priority = "<3>"
	}
	if _, err := j.to.Write(append([]byte(priority), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// withoutTime leaves a record's time out.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		return slog.Attr{}
	}
	return a
}
