package cli

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

func newRunCommand(deps Deps) *cobra.Command {
	var path, format string
	cmd := &cobra.Command{
		Use:   "run [--config FILE]",
		Short: "Run this node: its agent and its mysqld",
		Long: `Runs the node that the configuration file describes, until SIGTERM or SIGINT.
It then hands a primary's role over, stops mysqld and ends. A second signal ends
it at once, and the kernel ends its mysqld with it: no acknowledged transaction
is lost by that.

The log goes to stderr.

Exit code 0 after a stop that was asked for, 2 if the configuration is wrong, 1
for all else.`,
		Example: `  quorate run --config /etc/quorate/node.toml
  quorate run --config node.toml --log-format json 2> quorate.log`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(path)
			if err != nil {
				return err
			}
			logger, err := newLogger(cmd.ErrOrStderr(), format, cfg.LogLevel)
			if err != nil {
				return usage(err)
			}
			for _, text := range cfg.Warnings() {
				logger.Warn("config: " + text)
			}
			return deps.RunAgent(cmd.Context(), cfg, logger, deps.Version)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&format, "log-format", "text", "`format` of the log: text or json")
	return cmd
}

func newLogger(w io.Writer, format string, level slog.Level) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q is unknown: use text or json", format)
}
