package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
)

const (
	// connMax bounds open connections, idle ones included: enough for a dozen
	// load balancers and monitors. What is beyond waits in the listen queue.
	connMax = 256
	// requestTimeout bounds reading a request and writing its answer.
	requestTimeout = 5 * time.Second
	// idleTimeout bounds how long an unused connection may keep its place.
	idleTimeout = 15 * time.Second
	// headerBytesMax bounds a request's header; ours have none of their own.
	headerBytesMax = 16 << 10
	// stopTimeout bounds how long answers under way may take when Run ends.
	stopTimeout = time.Second
)

// requestBytesMax bounds a request's body: a few settings in JSON.
const requestBytesMax = 4 << 10

// Provider is what the server shows. The agent implements it; its methods are
// called from many goroutines, and all but Purge and Control must be quick.
type Provider interface {
	Status() cluster.Status
	Metrics() []Metric
	// Collectors are metrics that keep their own state (histograms). It is
	// called once, by Run.
	Collectors() []prometheus.Collector
	// PurgePlan says what Purge would remove from the node's log. Purge removes
	// it, and says what it was.
	PurgePlan(cluster.PurgeRequest) cluster.PurgePlan
	Purge(cluster.PurgeRequest) (cluster.PurgePlan, error)
	// Control has an operator's request carried out. It takes as long as that
	// does, ControlTimeout at most.
	Control(context.Context, control.Request) control.Answer
}

// Config holds the server's settings.
type Config struct {
	// Listen is the host:port to bind.
	Listen string
	Logger *slog.Logger
}

// Server answers HTTP requests about this node.
type Server struct {
	config   Config
	provider Provider
	listener net.Listener
}

// New makes a Server. It opens and starts nothing.
func New(config Config, provider Provider) *Server {
	return &Server{config: config, provider: provider}
}

// Listen binds the port, so that "port in use" is known before anything else
// happens; the error names the address. Run closes it.
func (s *Server) Listen() (err error) {
	s.listener, err = net.Listen("tcp", s.config.Listen)
	return err
}

// Unlisten gives the port back where Run is not called after Listen, or has
// ended.
func (s *Server) Unlisten() {
	if s.listener != nil {
		s.listener.Close()
	}
}

// Addr returns the address that Listen has bound.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run answers requests until ctx ends, and returns after everything that it
// started has ended. Listen must have succeeded before.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		return errors.New("run api: Listen was not called")
	}
	server := &http.Server{
		Handler:     s.handler(),
		ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: headerBytesMax,
		ErrorLog:       slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stop sync.WaitGroup
	stop.Go(func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if server.Shutdown(grace) != nil {
			server.Close() // an answer that nobody reads
		}
	})
	err := server.Serve(limit(s.listener, connMax))
	cancel()
	stop.Wait()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve api: %w", err)
	}
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s.reply(w, http.StatusOK, s.provider.Status())
	})
	for path, ok := range map[string]func(cluster.NodeStatus) bool{
		"/health":    func(n cluster.NodeStatus) bool { return n.Mysqld == cluster.MysqldRunning || isLogger(n) },
		"/liveness":  func(cluster.NodeStatus) bool { return true },
		"/readiness": func(n cluster.NodeStatus) bool { return isPrimary(n) || isReplica(n) || isLogger(n) },
		"/primary":   isPrimary,
		"/replica":   isReplica,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			self := self(s.provider.Status())
			code := http.StatusServiceUnavailable
			if ok(self) {
				code = http.StatusOK
			}
			s.reply(w, code, self)
		})
	}
	mux.HandleFunc("GET /log/purge", s.purgePlan)
	mux.HandleFunc("POST /log/purge", local(s.purge))
	mux.HandleFunc("POST /control/{name}", s.control)
	mux.Handle("GET /metrics", promhttp.HandlerFor(newRegistry(s.provider), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", local(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/profile", local(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/trace", local(pprof.Trace))
	return mux
}

// local keeps what is an operator's, or costs a lot, to this machine.
func local(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !fromHere(r) {
			http.Error(w, "requests of this kind are taken from this node's own host only", http.StatusForbidden)
			return
		}
		answer(w, r)
	}
}

// purgePlan answers GET /log/purge.
func (s *Server) purgePlan(w http.ResponseWriter, r *http.Request) {
	var request cluster.PurgeRequest
	if text := r.URL.Query().Get("retention_size"); text != "" {
		size, err := strconv.ParseInt(text, 10, 64)
		if err != nil || size < 0 {
			http.Error(w, fmt.Sprintf("retention_size %q is not a number of bytes", text), http.StatusBadRequest)
			return
		}
		request.RetentionSize = &size
	}
	s.reply(w, http.StatusOK, s.provider.PurgePlan(request))
}

// purge answers POST /log/purge. A page in somebody's browser can send a form
// anywhere, but not JSON: so JSON it must be.
func (s *Server) purge(w http.ResponseWriter, r *http.Request) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		http.Error(w, "send JSON, with Content-Type: application/json", http.StatusUnsupportedMediaType)
		return
	}
	var request cluster.PurgeRequest
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, requestBytesMax))
	body.DisallowUnknownFields()
	if err := body.Decode(&request); err != nil {
		http.Error(w, fmt.Sprintf("decode request: %v", err), http.StatusBadRequest)
		return
	}
	if size := request.RetentionSize; size != nil && *size < 0 {
		http.Error(w, fmt.Sprintf("retention_size %d is not a number of bytes", *size), http.StatusBadRequest)
		return
	}
	plan, err := s.provider.Purge(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.reply(w, http.StatusOK, plan)
}

func isLogger(n cluster.NodeStatus) bool  { return n.Role == cluster.RoleLogger }
func isPrimary(n cluster.NodeStatus) bool { return n.Role == cluster.RolePrimary }
func isReplica(n cluster.NodeStatus) bool { return n.Role == cluster.RoleReplica }

// self returns the answering node's own status; the zero value, which is
// neither primary nor replica, if it is not there.
func self(st cluster.Status) cluster.NodeStatus {
	for _, n := range st.Nodes {
		if n.Name == st.Self {
			return n
		}
	}
	return cluster.NodeStatus{Name: st.Self}
}

func (s *Server) reply(w http.ResponseWriter, code int, value any) {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	if _, err := w.Write(append(body, '\n')); err != nil {
		s.config.Logger.Debug("cannot answer an api request", "err", err)
	}
}

// limitListener accepts at most as many connections at a time as places has.
type limitListener struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func limit(l net.Listener, n int) *limitListener {
	return &limitListener{Listener: l, places: make(chan struct{}, n), closed: make(chan struct{})}
}

// Accept waits for a place, then for a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitConn{Conn: conn, release: sync.OnceFunc(func() { <-l.places })}, nil
}

// Close makes Accept return also while it waits for a place.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitConn gives its place back when it is closed.
type limitConn struct {
	net.Conn
	release func()
}

func (c *limitConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
