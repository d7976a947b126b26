package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
)

// TestAgentThatIsSilent: if no agent answers at api.listen, the agent counts as not running only if nobody listens at
// its control socket either.
func TestAgentThatIsSilent(t *testing.T) {
	c := config.Default()
	st := sampleStatus()
	c.Node, c.Cluster, c.DataDir, c.API.Listen = st.Self, st.Cluster, t.TempDir(), "127.0.0.1:1"
	look := func(want cluster.CheckState, found string) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		if want == cluster.CheckWarn {
			ctx = t.Context()
		}
		got, silent, err := ownAgent(ctx, c)
		if err != nil || (got != nil) != (want == cluster.CheckWarn) || (silent != nil) != (want != "") {
			t.Fatalf("%s: %v, %v, %v", found, got, silent, err)
		}
		if silent != nil && (silent.State != want || !strings.Contains(silent.Found, found) || silent.Do == "") {
			t.Errorf("%+v, want %s: %s", silent, want, found)
		}
	}
	look("", "no agent")
	hangs, err := net.Listen("unix", c.ControlSocket())
	if err != nil {
		t.Fatal(err)
	}
	look(cluster.CheckFail, "it is starting, or hangs")
	if err := hangs.Close(); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(st) }))
	server.Listener.Close()
	if server.Listener, err = net.Listen("unix", c.ControlSocket()); err != nil {
		t.Fatal(err)
	}
	server.Start()
	defer server.Close()
	look(cluster.CheckWarn, "the file was changed since its start")

	path := filepath.Join(t.TempDir(), "node.toml")
	if err := os.WriteFile(path, fmt.Appendf(nil, "data_dir = %q\n[api]\nlisten = %q\n", c.DataDir, c.API.Listen), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"status", "node list"} {
		if code, out, errs := run(t, append(strings.Fields(command), "--config", path)...); code != exitOK || errs != "" {
			t.Errorf("%s asks the socket where nobody listens at api.listen: %d, %q, %q", command, code, out, errs)
		}
	}
}
