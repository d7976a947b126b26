//go:build mutation

package mutation

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// build builds the simulator with some files edited.
func build(t *testing.T, name string, edits []edit) (program string) {
	t.Helper()
	files, err := apply(edits)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for file, text := range files {
		real, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		replace[real] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(replace[real], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "sim")
	cmd := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./internal/testkit/sim/cmd")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return program
}

// verdict is the line of a seed that failed.
func verdict() *regexp.Regexp { return regexp.MustCompile(`(?m)^seed (\d+): .*FAILED (.{0,200})`) }

// world is in which world a mutation runs.
type world struct {
	nodes, from                                         int
	blips, members, pair, sourced, losses, xa, appliers bool
}

func (m mutation) world() world {
	return world{m.nodes, max(m.from, 1), m.blips, m.members, m.pair, m.sourced, m.losses, m.xa, m.appliers}
}

// run runs the seeds up to a number, until one fails: "" if none does.
func run(t *testing.T, program string, seeds int, w world) (failed string) {
	t.Helper()
	members, losses, xa, appliers := 0, 0, 0, 0 // the seed decides
	if w.losses {
		losses = 1
	}
	if w.xa {
		xa = 1
	}
	if w.appliers {
		appliers = 1
	}
	switch {
	case w.pair:
		members = 2
	case w.sourced:
		members = 3
	case w.members:
		members = 1
	case w.blips:
		members = -1
	}
	out, err := exec.Command(program, "-seeds", fmt.Sprintf("%d..%d", w.from, w.from+seeds-1), "-nodes", fmt.Sprint(w.nodes), fmt.Sprintf("-blips=%t", w.blips),
		"-members", fmt.Sprint(members), "-losses", fmt.Sprint(losses), "-xa", fmt.Sprint(xa), "-appliers", fmt.Sprint(appliers), "-parallel", "2").CombinedOutput()
	if err == nil {
		return ""
	}
	found := verdict().FindSubmatch(out)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 || found == nil {
		t.Fatalf("run the simulator: %v\n%s", err, out)
	}
	return fmt.Sprintf("seed %s: %s", found[1], found[2])
}

// TestNothingIsBrokenHere wants the seeds to pass that the mutations have to fail.
func TestNothingIsBrokenHere(t *testing.T) {
	seeds := map[world]int{}
	for _, m := range mutations() {
		seeds[m.world()] = max(seeds[m.world()], m.seeds)
	}
	program := build(t, "as it is", nil)
	for w, n := range seeds {
		if failed := run(t, program, n, w); failed != "" {
			t.Fatalf("%+v: %s", w, failed)
		}
	}
}

// TestEveryMutationIsCaught wants the simulator to fail with each.
func TestEveryMutationIsCaught(t *testing.T) {
	for _, m := range mutations() {
		t.Run(m.name, func(t *testing.T) {
			began := time.Now()
			if len(m.setup) > 0 {
				if failed := run(t, build(t, m.name, m.setup), m.seeds, m.world()); failed != "" {
					t.Fatalf("its setup alone: %s", failed)
				}
			}
			failed := run(t, build(t, m.name, append(append([]edit(nil), m.setup...), m.edits...)), m.seeds, m.world())
			if failed == "" {
				t.Fatalf("survived %d seeds from %d: %s", m.seeds, m.world().from, m.what)
			}
			t.Logf("%s: %s (%v)", m.what, failed, time.Since(began).Round(time.Second))
		})
	}
}
