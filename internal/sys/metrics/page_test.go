package metrics

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write docs/metrics.md again")

const pageHead = `# Metrics

What a node shows at ` + "`/metrics`" + ` on its API's port (7401, on loopback unless ` + "`[api] listen`" + ` says otherwise), for Prometheus. Beside these there are
Go's own (` + "`go_…`" + `) and the process' (` + "`process_…`" + `). An agent shows its metrics whatever its mysqld does, also while it joins, copies a damaged log from others, or was
removed: then there are fewer. It shows none while it reads its log at its start, which may take minutes.

- **Scrape** each agent, in a job named ` + "`quorate`" + `, with a label ` + "`cluster`" + ` for each cluster. An example is [prometheus.yaml](../packaging/prometheus/prometheus.yaml).
- **Alerts** are in [quorate.rules.yaml](../packaging/prometheus/quorate.rules.yaml); each has a section in the [runbook](runbook.md).
- **A board** for Grafana is [quorate.json](../packaging/grafana/quorate.json). A test has a real Prometheus answer each of its queries, over failovers; it has not been opened in a Grafana yet.
- **Units** are in the names: seconds, bytes; a timestamp is in seconds since 1970. An index counts entries of the log. All else counts what the name says, or is 1 and 0.
- **Counters** begin at 0 when the agent starts.

This page is made from the code: ` + "`go test ./internal/sys/metrics -run TestPage -rewrite`" + `.
`

// unitOf returns what a metric's figure counts, which its name says.
func unitOf(d Desc) string {
	name := strings.TrimSuffix(d.Name, "_total")
	for suffix, unit := range map[string]string{
		"_timestamp_seconds": "s since 1970", "_bytes_per_second": "bytes/s", "_index": "index", "_bytes": "bytes", "_entries": "entries",
	} {
		if strings.HasSuffix(name, suffix) {
			return unit
		}
	}
	switch {
	case strings.HasSuffix(name, "_seconds"):
		return "s"
	case strings.HasPrefix(d.Help, "1 ") || strings.HasPrefix(d.Help, "1,"):
		return "1 or 0"
	}
	return "number"
}

func page() string {
	b := strings.Builder{}
	b.WriteString(pageHead)
	for _, s := range Sections() {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Title)
		if s.Text != "" {
			b.WriteString(s.Text + "\n\n")
		}
		b.WriteString("| metric | type | unit | what it is | when to look at it |\n|---|---|---|---|---|\n")
		for _, d := range s.Metrics {
			name := d.Name
			if len(d.Labels) > 0 {
				name += "{" + strings.Join(d.Labels, ",") + "}"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, d.Type, unitOf(d), d.Help, d.Look)
		}
	}
	return b.String()
}

// TestPage: docs/metrics.md is the list.
func TestPage(t *testing.T) {
	path := filepath.Join(root, "docs", "metrics.md")
	if *rewrite {
		if err := os.WriteFile(path, []byte(page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if d := cmp.Diff(page(), string(text)); err != nil || d != "" {
		t.Errorf("%v, run it with -rewrite (-want +got):\n%s", err, d)
	}
}
