package cli

import "github.com/spf13/cobra"

// Command returns the whole command line of a program of that version, to make its man pages and
// completions from. It cannot run an agent.
func Command(version string) *cobra.Command { return newRootCommand(Deps{Version: version}) }
