// Package test runs the command-line scripts of test/script against the
// program's own Main, with a stand-in for the agent or, for what must end before
// anything starts, with the agent itself.
package test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/quorate/quorate/internal/agent"
	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/front/router"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		// The whole program. The scripts that use it end before anything starts.
		"quorate-agent": func() {
			os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr, cli.Deps{
				Version: "v0-test", RunAgent: runAgent,
			}))
		},
		"quorate": func() {
			os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr, cli.Deps{
				Version: "v0-test", RunAgent: bindPorts,
				Exec: func(string, []string, []string) error { return errors.New("the scripts have no client") },
			}))
		},
	})
}

func runAgent(ctx context.Context, cfg config.Config, logger *slog.Logger, version string) error {
	a, err := agent.New(cfg, logger, version)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// bindPorts stands in for the agent: it opens the node's ports, as the agent
// does first of all, and ends.
func bindPorts(_ context.Context, cfg config.Config, logger *slog.Logger, version string) error {
	r := router.New(router.Config{Listen: cfg.Router.ReadWrite, Logger: logger}, nil)
	a := api.New(api.Config{Listen: cfg.API.Listen, Logger: logger}, nil)
	if err := errors.Join(r.Listen(), a.Listen()); err != nil {
		return err
	}
	logger.Info("agent ran", "node", cfg.Node, "version", version)
	return nil
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "script",
		Setup: func(env *testscript.Env) error {
			// BUSY is a port that somebody else has, FREE1 to FREE3 are not.
			busy, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			env.Defer(func() { busy.Close() })
			env.Setenv("BUSY", busy.Addr().String())
			for _, name := range []string{"FREE1", "FREE2", "FREE3"} {
				free, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				env.Setenv(name, free.Addr().String())
				defer free.Close()
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "envsubst": envsubst},
	})
}

// exits runs a command and wants an exit code: exits 2 quorate config check x
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGUMENTS]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	err = ts.Exec(args[1], args[2:]...)
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		code = e.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// envsubst replaces $NAME in a file by the script's variable: envsubst node.toml
func envsubst(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: envsubst FILE")
	}
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}
