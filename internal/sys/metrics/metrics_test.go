package metrics

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// root is the repository, from this package.
const root = "../../.."

// listed registers every metric of the list, with a value for each label.
func listed() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(Collector(func() (samples []Sample) {
		for _, s := range sections {
			for _, d := range s.Metrics {
				if d.Type != TypeHistogram {
					samples = append(samples, Of(d.Name, 1, d.Labels...))
				}
			}
		}
		return samples
	}))
	for _, s := range sections {
		for _, d := range s.Metrics {
			if d.Type == TypeHistogram {
				r.MustRegister(Histogram(d.Name, CoarseSeconds()))
			}
		}
	}
	return r
}

// TestLint: Prometheus' own linter has no objection to the metrics.
func TestLint(t *testing.T) {
	families, err := listed().Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, f := range families {
		if d, ok := Find(f.GetName()); !ok || !strings.HasPrefix(d.Name, "quorate_") || d.Help != f.GetHelp() || !strings.HasSuffix(d.Help, ".") || d.Look == "" {
			t.Errorf("%s: its prefix, or its texts: %+v", f.GetName(), d)
		}
	}
}

// TestUnlisted: a metric that is not in the list, or lacks a label, is an error of the scrape.
func TestUnlisted(t *testing.T) {
	for _, s := range []Sample{Of("quorate_unknown", 1), Of("quorate_node_state", 1), Of("quorate_tap_ack_seconds", 1), Of("quorate_term", 1, "x")} {
		r := prometheus.NewRegistry()
		r.MustRegister(Collector(func() []Sample { return []Sample{s} }))
		if families, err := r.Gather(); err == nil {
			t.Errorf("%+v is shown: %v", s, families)
		}
	}
}

func TestSamples(t *testing.T) {
	want := []Sample{{"quorate_x", 0, []string{"a"}}, {"quorate_x", 1, []string{"b"}}}
	if d := cmp.Diff(want, OneOf("quorate_x", []string{"a", "b"}, "b")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	var m dto.Metric
	if err := Counter("quorate_raft_messages_sent_total", "append").Write(&m); err != nil || m.GetLabel()[0].GetName() != "kind" || m.GetLabel()[0].GetValue() != "append" {
		t.Errorf("%v, %v", &m, err)
	}
}

// named finds the metrics that production code makes.
var named = regexp.MustCompile(`metrics\.(?:Of|Bool|OneOf|Counter|Histogram)\(\s*"(\w+)"`)

// TestNames: the code makes all metrics of the list, and no others.
func TestNames(t *testing.T) {
	made := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			made[m[1]] = true
			if _, ok := Find(m[1]); !ok {
				t.Errorf("%s makes %s, which is not in the list", path, m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sections {
		for _, d := range s.Metrics {
			if !made[d.Name] {
				t.Errorf("nobody makes %s", d.Name)
			}
			delete(made, d.Name)
		}
	}
}
