package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// otherMysqld is the program mysqld of a prefix. It runs the real mysqld, but reports the
// version in a file. While there is a file "broken" it does not start, but adds that version to the file.
const otherMysqld = `#!/bin/sh
dir='@DIR@'
case " $* " in
*" --version "*) "$dir/bin/mysqld.real" "$@" | sed "s/Ver [0-9.]*/Ver $(cat "$dir/version")/"; exit ;;
esac
[ ! -e "$dir/broken" ] || { cat "$dir/version" >>"$dir/broken"; echo 'this mysqld is broken' >&2; exit 1; }
exec "$dir/bin/mysqld.real" "$@"
`

// otherMySQL makes a prefix whose mysqld reports another version (release). It is the
// same server: so the test shows the steps of an upgrade, but not what MySQL does with its data.
func otherMySQL(t *testing.T) (dir string, release func(version install.Version)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "qu-") // mysqld's account may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(dir, "bin", "mysqld")
	if err := mysqldtest.Prefix(dir, mysqlBase(t)); err != nil {
		t.Fatal(err)
	}
	release = func(v install.Version) {
		if err := os.WriteFile(filepath.Join(dir, "version"), []byte(v.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(server, server+".real"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(server, []byte(strings.ReplaceAll(otherMysqld, "@DIR@", dir)), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, release
}

// TestUpgradeMySQL upgrades a cluster under load to the next patch release, and then to a release that
// does not start.
func TestUpgradeMySQL(t *testing.T) {
	beside(t)
	real, err := install.Discover(mysqlBase(t))
	if err != nil {
		t.Fatal(err)
	}
	base, release := otherMySQL(t)
	first, second, third := real.Version, real.Version, real.Version
	second.Patch, third.Patch = first.Patch+1, first.Patch+2
	fourth := third
	fourth.Patch++
	release(first)
	f := newFixture(t, devcluster.Options{Nodes: 3, MySQLBase: base, PromotionTimeout: 10 * time.Second}) // Broken waits for it twice
	f.scenario(t, "All", func(t *testing.T, ctx context.Context) { f.upgradeAll(t, ctx, release, first, second) })
	f.scenario(t, "Broken", func(t *testing.T, ctx context.Context) {
		f.upgradeBroken(t, ctx, filepath.Join(base, "broken"), release, second, third)
	})
	f.scenario(t, "Killed", func(t *testing.T, ctx context.Context) { f.upgradeKilled(t, ctx, release, fourth) })
}

// upgradeAll: the version on disk is planned, and the upgrade goes node by node, the primary last.
func (f *fixture) upgradeAll(t *testing.T, ctx context.Context, release func(install.Version), from, to install.Version) {
	primary := f.heal(t, ctx)
	if out := f.must(t, ctx, primary, "upgrade", "plan"); !strings.Contains(out, "nothing to do") {
		t.Errorf("plan: %s", out)
	}
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	release(to)
	if out := f.must(t, ctx, primary, "upgrade", "plan"); strings.Count(out, from.String()) < 3 || strings.Contains(out, "next is "+f.Name(primary)) || !strings.Contains(out, "next is ") {
		t.Errorf("plan: %s", out)
	}
	var run struct {
		Done []struct{ Node string }
		Plan struct{ State string }
	}
	out := f.must(t, ctx, primary, "upgrade", "next", "--all", "--json", "--max-pause", "10s")
	progress, result, _ := strings.Cut(out, "{")
	t.Log(progress)
	if err := json.Unmarshal([]byte("{"+result), &run); err != nil || run.Plan.State != "done" || len(run.Done) != 3 || run.Done[2].Node != f.Name(primary) {
		t.Errorf("next --all: %v: %s", err, out)
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	if now := f.heal(t, ctx); now == primary {
		t.Errorf("%s is the primary still", f.Name(now))
	}
	f.allRun(t, ctx, to)
	f.check(t, ctx)
}

func (f *fixture) allRun(t *testing.T, ctx context.Context, v install.Version) {
	t.Helper()
	for i := range f.Len() {
		if s := f.status(t, ctx, i); s.ServerVersion != v.String() {
			t.Errorf("%s runs %s, not %s", s.Name, s.ServerVersion, v)
		}
	}
}

// awaitStart waits until an agent has tried to start the broken mysqld of version v. An earlier start, which asked
// for the version before, is over then, so its mysqld cannot be taken for another version.
func awaitStart(t *testing.T, ctx context.Context, broken string, v install.Version) {
	t.Helper()
	if err := devcluster.Poll(ctx, "mysqld "+v.String()+" is started", func(context.Context) (bool, string, error) {
		starts, err := os.ReadFile(broken)
		return strings.HasSuffix(string(starts), v.String()), string(starts), err
	}); err != nil {
		t.Fatal(err)
	}
}

// upgradeBroken: a new mysqld that does not start stops the upgrade at one node, and the old
// one, installed again, is started without anybody's help.
func (f *fixture) upgradeBroken(t *testing.T, ctx context.Context, broken string, release func(install.Version), from, to install.Version) {
	primary := f.heal(t, ctx)
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	release(to)
	if err := os.WriteFile(broken, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{{fmt.Sprintf("mysqld %s of node", to), "next", "--all"}, {"in the way: node ", "plan"}} {
		out, err := f.quorate(t, ctx, primary, append([]string{"upgrade"}, c[1:]...)...)
		exit, ok := errors.AsType[*exec.ExitError](err)
		if goBack := fmt.Sprintf("To go back, install mysqld %s there again: its data are still of that version", from); !ok || exit.ExitCode() != 1 || !strings.Contains(out, c[0]) || !strings.Contains(out, goBack) {
			t.Errorf("upgrade %s: %v: %s", c[1], err, out)
		}
		t.Log(out)
	}
	load.awaitAcks(t, ctx, 50)
	release(from)
	awaitStart(t, ctx, broken, from)
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	if out := f.must(t, ctx, primary, "upgrade", "plan"); !strings.Contains(out, "nothing to do") {
		t.Errorf("plan: %s", out)
	}
	load.stop(t)
	f.check(t, ctx)
}

// upgradeKilled: the command is killed at its first step. Then each remaining node is killed while its mysqld is
// restarted, the primary last. The same command goes on with the remaining steps.
func (f *fixture) upgradeKilled(t *testing.T, ctx context.Context, release func(install.Version), to install.Version) {
	primary := f.heal(t, ctx)
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	release(to)
	done, err := f.upgradeSteps(t, ctx, primary, func(cmd *exec.Cmd, _ int) error { return cmd.Process.Kill() })
	if err == nil || len(done) != 1 {
		t.Fatalf("the command that was killed: %v, steps %v", err, done)
	}
	f.heal(t, ctx)
	// The command runs on a node that is upgraded already: so the agent that is killed is not the one to which it talks.
	left, err := f.upgradeSteps(t, ctx, done[0], func(_ *exec.Cmd, node int) error { return errors.Join(f.KillAgent(node), f.Start(ctx, node)) }) // its mysqld dies with it
	t.Logf("nodes were killed: %v", err)
	if slices.Sort(left); !slices.Equal(left, f.others(done[0])) {
		t.Errorf("nodes %v were killed, want %v", left, f.others(done[0]))
	}
	f.heal(t, ctx)
	t.Log(f.must(t, ctx, 0, "upgrade", "next", "--all", "--max-pause", "10s"))
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.heal(t, ctx)
	f.allRun(t, ctx, to)
	f.check(t, ctx)
}

// upgradeSteps runs the upgrade at a node, calls do once a step's mysqld has ended, and returns the nodes that had a
// step.
func (f *fixture) upgradeSteps(t *testing.T, ctx context.Context, at int, do func(cmd *exec.Cmd, node int) error) (nodes []int, err error) {
	t.Helper()
	var pids [3]int
	for i := range pids {
		pids[i] = f.MysqldPID(i)
	}
	cmd := exec.CommandContext(ctx, os.Getenv(binaryVariable), "upgrade", "next", "--all", "--max-pause", "10s", "--config", f.ConfigPath(at))
	says, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(says); lines.Scan(); {
		t.Log(lines.Text())
		name, step, _ := strings.Cut(lines.Text(), ": ")
		node := slices.IndexFunc([]int{0, 1, 2}, func(i int) bool { return f.Name(i) == name })
		if node < 0 || !strings.Contains(step, ", from mysqld ") {
			continue
		}
		nodes = append(nodes, node)
		err := devcluster.Poll(ctx, "the mysqld of "+name+" has ended", func(context.Context) (bool, string, error) {
			pid := f.MysqldPID(node)
			return pid != pids[node], fmt.Sprint(pid), nil
		})
		if err := errors.Join(err, do(cmd, node)); err != nil {
			t.Error(err)
		}
	}
	return nodes, cmd.Wait()
}
