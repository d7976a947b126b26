package cli

import "github.com/spf13/cobra"

func newLogCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "log",
		Short: "Read, check, export and purge a node's replicated log",
		Long: `Reads, checks, exports or purges the log of one node: the segments in DATA_DIR/log. They are
binlog files, and mysqlbinlog can read them.`,
		Example: `  quorate log ls --config node.toml
  quorate log verify --config node.toml
  quorate log export --config node.toml --out all.binlog
  quorate log purge --dry-run
  quorate log purge --config node.toml --keep 4GiB`,
	}, newLogLsCommand(), newLogDumpCommand(), newLogVerifyCommand(), newLogExportCommand(), newLogPurgeCommand())
}
