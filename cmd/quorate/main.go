// Command quorate is the agent and its command line. All of it is in
// internal/cli and internal/agent; this is where they meet the process.
package main

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/quorate/quorate/internal/agent"
	"github.com/quorate/quorate/internal/cli"
)

// version is set by a release build: -ldflags "-X main.version=v1.2.3".
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	// The first signal asks; after it signals have their usual effect again, so
	// a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr, cli.Deps{
		Version: cmp.Or(version, buildVersion()), RunAgent: agent.Run, Exec: syscall.Exec,
	}))
}

// buildVersion returns the version that the Go toolchain derived from the
// repository.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
