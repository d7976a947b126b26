package cli

import "github.com/spf13/cobra"

// Command returns the root command, with all commands, of a program of that version. Man pages and
// completions are made from it. It cannot run an agent.
func Command(version string) *cobra.Command { return newRootCommand(Deps{Version: version}) }
