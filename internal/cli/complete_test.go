package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCompletion: a shell completes the names of nodes, which it asks the agent for, the words of flags and arguments
// that take one of a few, and files where a file is meant.
func TestCompletion(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(sampleStatus()) }))
	defer server.Close()
	addr := server.Listener.Addr().String()
	const (
		nodes   = "a\tprimary b\terrant c\tunreachable d\tunknown"
		files   = " :0"
		noFiles = " :4"
	)
	for words, want := range map[string]string{
		"switchover --addr " + addr + " --to":     nodes + noFiles,
		"node add d --addr " + addr + " --source": nodes + " none" + noFiles,
		"node set --addr " + addr:                 nodes + noFiles,
		"node set b --addr " + addr:               noFiles,
		"node add --addr " + addr:                 noFiles,
		"switchover --addr " + addr:               noFiles,
		"fence --addr 127.0.0.1:1":                noFiles,
		"maintenance":                             "on off" + noFiles,
		"cluster set --durability":                "majority all site-majority" + noFiles,
		"node add d --kind":                       "full logger learner" + noFiles,
		"node promote d --kind":                   "full logger" + noFiles,
		"config check":                            files,
		"adopt":                                   files,
		"log export --out":                        files,
	} {
		_, out, _ := run(t, append(append([]string{"__complete"}, strings.Fields(words)...), "")...)
		if got := strings.ReplaceAll(strings.TrimSpace(out), "\n", " "); got != strings.TrimSpace(want) {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
}
