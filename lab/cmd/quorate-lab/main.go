// Command quorate-lab compares quorate with other ways to keep a MySQL server
// available, on one machine. docs/lab.md says how it is built.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/lab/fault"
)

func main() {
	fault.ServeFUSE() // it does not return in a process that serves a disk
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	// The first signal asks for the end. After it signals have their usual effect again: a second one
	// ends the process at once, and the kernel then ends all that the process started.
	context.AfterFunc(ctx, stop)
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "quorate-lab:", err)
		os.Exit(1)
	}
}

// root is the command line: each command has a file of its own.
func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "quorate-lab",
		Short:         "Compare quorate with its rivals: same machine, data, network, load and faults",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.AddCommand(upCommand(), runCommand(), reportCommand(), compareCommand(), systemsCommand(), networksCommand(), plansCommand())
	return cmd
}
