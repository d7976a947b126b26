package devcluster

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
)

// TestKindsAndWeights: the last nodes are loggers, the first have the weights, in
// every node's configuration.
func TestKindsAndWeights(t *testing.T) {
	t.Parallel()
	opts := Options{Binary: "/bin/false", Nodes: 3, Weights: []int{0, 7}, Logger: slog.New(slog.DiscardHandler)}
	for loggers, ok := range map[int]bool{-1: false, 0: true, 1: true, 2: false} {
		opts.Loggers, opts.Dir = loggers, filepath.Join(t.TempDir(), "c")
		c, err := New(opts)
		if ok != (err == nil) {
			t.Errorf("%d loggers of 3 nodes: %v", loggers, err)
		}
		if loggers != 1 || err != nil {
			continue
		}
		if d := cmp.Diff([]int{0, 1}, c.Full()); d != "" {
			t.Errorf("full nodes (-want +got):\n%s", d)
		}
		cfg, err := config.Load(c.ConfigPath(2))
		if err != nil {
			t.Fatal(err)
		}
		var got []config.Member
		for _, m := range cfg.Members {
			m.Peer, m.Key = "", ""
			got = append(got, m)
		}
		want := []config.Member{
			{Name: "a", Kind: cluster.KindFull}, {Name: "b", Kind: cluster.KindFull, Weight: 7},
			{Name: "c", Kind: cluster.KindLogger, Weight: cluster.WeightDefault},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("members (-want +got):\n%s", d)
		}
	}
}
