package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/agent/hooks"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestHooks: each agent tells a program of changes, through a switchover, and through the death of an
// agent while its program runs.
func TestHooks(t *testing.T) {
	beside(t)
	dir := t.TempDir()
	hook := filepath.Join(dir, "hook")
	// The hook does not end while the file "hang" exists.
	text := "#!/bin/sh\nread -r line\necho \"$line\" >> \"$1/$QUORATE_NODE\"\nwhile [ -e \"$1/hang\" ]; do sleep 0.05; done\n"
	if err := os.WriteFile(hook, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm, OnChange: []string{hook, dir}})
	f.scenario(t, "Switchover", func(t *testing.T, ctx context.Context) {
		from := f.heal(t, ctx)
		to := f.others(from)[0]
		f.must(t, ctx, from, "switchover", "--to", f.Name(to), "--max-pause", "10s")
		f.awaitHook(t, ctx, dir, from, "replica", to)
		f.awaitHook(t, ctx, dir, to, "primary", to)
		f.awaitHook(t, ctx, dir, f.others(to)[1], "replica", to)
	})
	f.scenario(t, "Killed", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		hang := filepath.Join(dir, "hang")
		if err := os.WriteFile(hang, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		to := f.others(primary)[0]
		f.must(t, ctx, primary, "switchover", "--to", f.Name(to), "--max-pause", "10s")
		f.heal(t, ctx) // no hook holds a role up
		before := len(f.hookTold(t, dir, to))
		if err := f.KillBoth(to); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(hang); err != nil {
			t.Fatal(err)
		}
		if err := f.Start(ctx, to); err != nil {
			t.Fatal(err)
		}
		now := f.heal(t, ctx)
		for i := range f.Len() {
			role := "replica"
			if i == now {
				role = "primary"
			}
			f.awaitHook(t, ctx, dir, i, role, now)
		}
		if after := f.hookTold(t, dir, to); len(after) <= before {
			t.Errorf("%s was told nothing after its agent was killed: %+v", f.Name(to), after)
		}
		for i := range f.Len() {
			for n, told := range f.hookTold(t, dir, i)[1:] {
				if last := f.hookTold(t, dir, i)[n]; told.Sequence <= last.Sequence {
					t.Errorf("%s: %d was told after %d", f.Name(i), told.Sequence, last.Sequence)
				}
			}
		}
	})
}

// hookTold returns what a node's hook was told so far.
func (f *fixture) hookTold(t *testing.T, dir string, i int) (all []hooks.Told) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, f.Name(i)))
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var one hooks.Told
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil || one.Node != f.Name(i) {
			t.Fatalf("%s was told %q: %v", f.Name(i), lines.Text(), err)
		}
		all = append(all, one)
	}
	return all
}

// awaitHook waits until a node's hook was told last that this is its role, and that the primary.
func (f *fixture) awaitHook(t *testing.T, ctx context.Context, dir string, i int, role string, primary int) {
	t.Helper()
	if err := devcluster.Poll(ctx, fmt.Sprintf("the hook of %s is told that it is a %s, and %s the primary", f.Name(i), role, f.Name(primary)),
		func(context.Context) (bool, string, error) {
			all := f.hookTold(t, dir, i)
			last := all[len(all)-1]
			peer := last.PrimaryPeer != "" && strings.Contains(last.PrimaryPeer, ":")
			return string(last.Role) == role && last.Primary == f.Name(primary) && peer, fmt.Sprintf("%+v", last), nil
		}); err != nil {
		t.Error(err)
	}
}
