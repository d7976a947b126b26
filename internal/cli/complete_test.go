package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCompletion: a shell completes the names of nodes, which the agent knows, and words of which there are a few.
func TestCompletion(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(sampleStatus()) }))
	defer server.Close()
	addr := server.Listener.Addr().String()
	nodes := "a\tprimary b\terrant c\tunreachable d\tunknown"
	for words, want := range map[string]string{
		"switchover --addr " + addr + " --to": nodes,
		"node set --addr " + addr:             nodes,
		"node set b --addr " + addr:           "",
		"node add --addr " + addr:             "",
		"switchover --addr " + addr:           "",
		"fence --addr 127.0.0.1:1":            "",
		"cluster set --durability":            "majority all site-majority",
		"node add d --kind":                   "full logger learner",
		"node promote d --kind":               "full logger",
	} {
		_, out, _ := run(t, append(append([]string{"__complete"}, strings.Fields(words)...), "")...)
		got, _, _ := strings.Cut(out, ":")
		if got := strings.ReplaceAll(strings.TrimSpace(got), "\n", " "); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
}
