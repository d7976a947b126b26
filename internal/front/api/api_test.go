package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/sys/metrics"
)

func TestMain(m *testing.M) {
	asks()
	goleak.VerifyTestMain(m)
}

type fakeProvider struct {
	status  status.Cluster
	metrics []metrics.Sample
	control func(context.Context, control.Request) control.Answer
}

func (p *fakeProvider) Status() status.Cluster    { return p.status }
func (p *fakeProvider) Metrics() []metrics.Sample { return p.metrics }

func (p *fakeProvider) Control(ctx context.Context, r control.Request) control.Answer {
	return p.control(ctx, r)
}

func (p *fakeProvider) Collectors() []prometheus.Collector {
	return []prometheus.Collector{prometheus.NewGauge(prometheus.GaugeOpts{Name: "quorate_kept", Help: "Kept."})}
}

// start runs a server until the test ends.
func start(t *testing.T, p Provider) *Server {
	t.Helper()
	return startWith(t, Config{}, p)
}

func startWith(t *testing.T, config Config, p Provider) *Server {
	t.Helper()
	config.Listen, config.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	s := New(config, p)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	if config.Socket != "" {
		if err := s.ListenControl(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + s.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func statusOf(role status.Role, mysqld status.MysqldState) status.Cluster {
	return status.Cluster{
		Cluster: "orders", ClusterID: "1f", Self: "a", Primary: "b",
		Nodes: []status.Node{
			{ID: 2, Name: "b", Role: status.RolePrimary, Mysqld: status.MysqldRunning},
			{ID: 1, Name: "a", Reachable: true, Role: role, Mysqld: mysqld, Reason: "because", LagSeconds: 1.5},
		},
	}
}

// TestReplicaWithALag: a load balancer sends reads to no replica whose data may be older than it says.
func TestReplicaWithALag(t *testing.T) {
	st := statusOf(status.RoleReplica, status.MysqldRunning)
	st.Nodes[1].Leader, st.Nodes[1].Reachable, st.Nodes[1].LagAge = 2, true, 0.4
	s := start(t, &fakeProvider{status: st})
	for path, want := range map[string]int{
		"/replica": 200, "/replica?lag=2s": 200, "/replica?lag=1.8s": 503, "/replica?lag=1s": 503, "/replica?lag=1m": 200,
		"/replica?lag=ten": 400, "/replica?lag=-1s": 400, "/replica?lag=0s": 400,
	} {
		if code, body := get(t, s, path); code != want {
			t.Errorf("%s: %d, want %d: %s", path, code, want, body)
		}
	}
}

func TestHealthEndpoints(t *testing.T) {
	for _, tc := range []struct {
		role    status.Role
		mysqld  status.MysqldState
		leader  cluster.NodeID
		want    string // the endpoints that say 200
		stopped string
	}{
		{status.RolePrimary, status.MysqldRunning, 2, "/health /liveness /readiness /primary", ""},
		{status.RoleReplica, status.MysqldRunning, 2, "/health /liveness /readiness /replica", ""},
		{status.RoleReplica, status.MysqldRunning, 2, "/health /liveness", "replication has stopped"},
		{status.RoleLogger, status.MysqldNone, 2, "/health /liveness /readiness", ""},
		{status.RoleReplica, status.MysqldRunning, 0, "/health /liveness", ""},
		{status.RoleLogger, status.MysqldNone, 0, "/health /liveness", ""},
		{status.RoleUnverified, status.MysqldRunning, 2, "/health /liveness", ""},
		{status.RolePromoting, status.MysqldRunning, 2, "/health /liveness", ""},
		{status.RoleErrant, status.MysqldRunning, 2, "/health /liveness", ""},
		{status.RoleDemoting, status.MysqldStopped, 2, "/liveness", ""},
		{status.RoleStarting, status.MysqldStarting, 2, "/liveness", ""},
		{status.RoleFenced, status.MysqldStopped, 2, "/liveness", ""},
	} {
		st := statusOf(tc.role, tc.mysqld)
		st.Nodes[1].Leader, st.Nodes[1].ApplierStopped = tc.leader, tc.stopped
		s := start(t, &fakeProvider{status: st})
		var yes []string
		for _, path := range []string{"/health", "/liveness", "/readiness", "/primary", "/replica"} {
			code, body := get(t, s, path)
			switch code {
			case http.StatusOK:
				yes = append(yes, path)
			case http.StatusServiceUnavailable:
			default:
				t.Errorf("%s: %s answered %d", tc.role, path, code)
			}
			var n status.Node
			if err := json.Unmarshal([]byte(body), &n); err != nil || n.Name != "a" || n.Reason != "because" {
				t.Errorf("%s: body %q, %v", path, body, err)
			}
		}
		if got := strings.Join(yes, " "); got != tc.want {
			t.Errorf("%s, leader %d: 200 from %q, want %q", tc.role, tc.leader, got, tc.want)
		}
	}
}

// TestHealthForStrangers: a client that may not read gets the node's name and role, and no other field.
func TestHealthForStrangers(t *testing.T) {
	s := start(t, &fakeProvider{status: statusOf(status.RolePrimary, status.MysqldRunning)})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String()+"/primary", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "db.example"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var said map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || len(said) != 2 || said["name"] != "a" || said["role"] != "primary" {
		t.Errorf("%v, %v", said, err)
	}
}

func TestUnknownSelfIsNothing(t *testing.T) {
	p := &fakeProvider{status: status.Cluster{Self: "x"}}
	if code, _ := get(t, start(t, p), "/readiness"); code != http.StatusServiceUnavailable {
		t.Errorf("readiness of a node without status: %d", code)
	}
}

func TestOnlyReads(t *testing.T) {
	s := start(t, &fakeProvider{})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+s.Addr().String()+"/status", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST answered %d", resp.StatusCode)
	}
	if code, _ := get(t, s, "/nothing"); code != http.StatusNotFound {
		t.Errorf("unknown path answered %d", code)
	}
}

func TestFetchStatus(t *testing.T) {
	want := statusOf(status.RoleReplica, status.MysqldRunning)
	s := start(t, &fakeProvider{status: want})
	got, err := FetchStatus(t.Context(), s.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.InWords(), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestFetchStatusFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	if _, err := FetchStatus(t.Context(), nobody, ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	for name, handler := range map[string]http.HandlerFunc{
		"it answered 404 Not Found": http.NotFound,
		"decode answer":             func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
	} {
		other := httptest.NewServer(handler)
		defer other.Close()
		if _, err := FetchStatus(t.Context(), other.Listener.Addr().String(), ""); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q in it", err, name)
		}
	}
	if _, err := FetchStatus(t.Context(), "no host:x", ""); err == nil {
		t.Error("a bad address is no error")
	}
}

func TestMetrics(t *testing.T) {
	p := &fakeProvider{metrics: []metrics.Sample{metrics.Of("quorate_term", 7)}}
	s := start(t, p)
	code, body := get(t, s, "/metrics")
	for _, want := range []string{
		"\nquorate_api_expelled_total 0\n", "\nquorate_kept 0\n", "\n# TYPE quorate_term gauge\nquorate_term 7\n", "\ngo_goroutines ", "\nprocess_open_fds ",
	} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("code %d, without %q", code, want)
		}
	}
	p.metrics = []metrics.Sample{{Name: "quorate_unknown"}}
	if code, _ := get(t, s, "/metrics"); code != http.StatusInternalServerError {
		t.Errorf("a metric that is not in the list: %d, want 500", code)
	}
}

func TestListenErrors(t *testing.T) {
	s := start(t, &fakeProvider{})
	second := New(Config{Listen: s.Addr().String()}, nil)
	if err := second.Listen(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Listen = %v, want EADDRINUSE", err)
	}
	if err := second.Run(t.Context()); err == nil {
		t.Error("Run without Listen returned nil")
	}
}

// TestLimit: a connection beyond the limit waits until another one is closed,
// and Close ends that wait.
func TestLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limit(inner, 1)
	for range 2 {
		client, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
	}
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if len(l.places) != 1 {
		t.Fatalf("%d places taken, want 1", len(l.places))
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, _ := l.Accept()
		accepted <- conn
	}()
	first.Close()
	first.Close() // closing twice gives only one place back
	second := <-accepted
	if second == nil || len(l.places) != 1 {
		t.Fatalf("second = %v, %d places taken, want 1", second, len(l.places))
	}
	go func() {
		conn, _ := l.Accept()
		accepted <- conn
	}()
	l.Close()
	if conn := <-accepted; conn != nil {
		t.Error("accepted after Close")
	}
	second.Close()
}
