package cli

import "github.com/spf13/cobra"

func newLogCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "log",
		Short: "Work with a node's replicated log",
		Long: `Works with the log of one node: the segments in DATA_DIR/log, which are binlog
files that mysqlbinlog can read.`,
		Example: `  quorate log ls --config node.toml
  quorate log verify --config node.toml
  quorate log export --config node.toml --out all.binlog
  quorate log purge --dry-run
  quorate log purge --config node.toml --keep 4GiB`,
	}, newLogLsCommand(), newLogDumpCommand(), newLogVerifyCommand(), newLogExportCommand(), newLogPurgeCommand())
}
