package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/sys/metrics"
	"github.com/quorate/quorate/internal/sys/strangers"
)

const (
	// connMax bounds the port's open connections, idle ones included: enough for a dozen load
	// balancers and monitors. When there are more, the connection that was idle longest is closed,
	// of the address that has the most. At most connPerSource connections of one address may be
	// idle for longer than requestTimeout.
	connMax       = 256
	connPerSource = 64
	// headerTimeout bounds reading a request's header, also the first one of a new connection.
	headerTimeout = 2 * time.Second
	// requestTimeout bounds reading a request and writing its answer.
	requestTimeout = 5 * time.Second
	// idleTimeout bounds how long an unused connection may keep its place.
	idleTimeout = 15 * time.Second
	// headerBytesMax bounds the header of a request; our own clients need little.
	headerBytesMax = 16 << 10
	// stopTimeout is how long answers under way may take when Run ends.
	stopTimeout = time.Second
)

// Provider is the source of the answers. The agent implements it. Its methods are called from
// many goroutines, and all except Control must be quick.
type Provider interface {
	Status() status.Cluster
	Metrics() []metrics.Sample
	// Collectors are metrics that keep their own state (histograms). It is
	// called once, by Run.
	Collectors() []prometheus.Collector
	// Control carries out an operator's request. It takes as long as the request does, at most
	// ControlTimeout.
	Control(context.Context, control.Request) control.Answer
}

// Config holds the server's settings.
type Config struct {
	// Listen is the host:port to bind.
	Listen string
	// Socket is the path of the control socket. Group is the OS group whose accounts may send
	// requests there, beside root and the agent's own account; "" = none.
	Socket, Group string
	// TokensFile has the tokens for the port; "" = reading needs no token, and nobody may operate
	// there.
	TokensFile string
	// Pprof says that the port serves profiles, to this host alone.
	Pprof bool
	// Stream writes a copy of the node's data or log, for a client of the control socket; nil = no
	// copies. It ends when the request does. It is called from many goroutines.
	Stream func(context.Context, control.Request, io.Writer) error
	Logger *slog.Logger
}

// Server answers HTTP requests about this node.
type Server struct {
	config   Config
	provider Provider
	listener net.Listener
	room     *strangers.Room // the port's connections
	// controlGroup is the number of config.Group, once the control socket is open.
	controlGroup uint32
	control      net.Listener // nil before ListenControl

	tokens    *tokens
	strangers *strangers.Log
	streams   streams
	copies    chan struct{} // one place for each copy of the data or the log
	ended     chan struct{} // closed when Run ends: streams end by themselves

	denied atomic.Uint64
}

// New makes a Server. It opens and starts nothing.
func New(config Config, provider Provider) *Server {
	limits := strangers.Limits{Max: connMax, PerSource: connPerSource, Spare: requestTimeout}
	return &Server{
		config: config, provider: provider, room: strangers.New(limits, config.Logger),
		tokens: &tokens{path: config.TokensFile, logger: config.Logger}, strangers: strangers.NewLog(config.Logger),
		streams: streams{open: make(map[netip.Addr]int)}, copies: make(chan struct{}, copiesMax), ended: make(chan struct{}),
	}
}

// Listen reads the file of tokens and binds the port, so that an unreadable file and "port in use"
// are known before anything else happens. The error names the address. Run closes the port.
func (s *Server) Listen() (err error) {
	if err := s.tokens.read(); err != nil {
		return err
	}
	s.listener, err = net.Listen("tcp", s.config.Listen)
	return err
}

// Unlisten closes the port and the control socket, for a caller that does not call Run after
// Listen, or whose Run has ended.
func (s *Server) Unlisten() {
	if s.listener != nil {
		s.listener.Close()
	}
	if s.control != nil {
		s.control.Close()
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
	handler := s.handler()
	eg, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, func() { close(s.ended) })()
	eg.Go(func() error {
		return s.serve(ctx, roomListener{s.listener, s.room}, &http.Server{Handler: handler, ConnState: asked, ConnContext: withCaller})
	})
	eg.Go(func() error {
		s.tokens.follow(ctx)
		return nil
	})
	if s.control != nil {
		eg.Go(func() error {
			server := &http.Server{Handler: s.controlHandler(handler), ConnContext: withPeer}
			return s.serve(ctx, limit(s.control, controlConnMax), server)
		})
	}
	return eg.Wait()
}

// serve runs one HTTP server until ctx ends.
func (s *Server) serve(ctx context.Context, l net.Listener, server *http.Server) error {
	server.ReadTimeout, server.WriteTimeout, server.IdleTimeout = requestTimeout, requestTimeout, idleTimeout
	server.ReadHeaderTimeout = headerTimeout
	server.MaxHeaderBytes = headerBytesMax
	server.ErrorLog = slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stop sync.WaitGroup
	stop.Go(func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if server.Shutdown(grace) != nil {
			server.Close() // there is an answer that nobody reads
		}
	})
	err := server.Serve(l)
	cancel()
	stop.Wait()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve api: %w", err)
	}
	return nil
}

// controlHandler answers operators' requests, and every GET that the port answers.
func (s *Server) controlHandler(port http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /control/{name}", s.answerControl)
	if s.config.Stream != nil {
		mux.HandleFunc("POST /stream/{name}", s.answerStream)
	}
	mux.Handle("GET /", port)
	return mux
}

// handler answers the requests of the port. On the control socket, reading needs no token.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	s.handleV1(mux)
	handlePage(mux)
	mux.HandleFunc("GET /status", s.reading(func(w http.ResponseWriter, _ *http.Request) {
		s.reply(w, http.StatusOK, s.provider.Status().InWords())
	}))
	for path, ok := range map[string]func(status.Node) bool{
		"/health":    func(n status.Node) bool { return n.Mysqld == status.MysqldRunning || isLogger(n) },
		"/liveness":  func(status.Node) bool { return true },
		"/readiness": func(n status.Node) bool { return isPrimary(n) || isReplica(n) || isLogger(n) && n.Leader != 0 },
		"/primary":   isPrimary,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			self := s.provider.Status().InWords().Own()
			code := http.StatusServiceUnavailable
			if ok(self) {
				code = http.StatusOK
			}
			s.replyHealth(w, r, code, self)
		})
	}
	mux.HandleFunc("GET /replica", s.answerReplica)
	mux.HandleFunc("POST /control/{name}", func(w http.ResponseWriter, r *http.Request) {
		text := "requests are taken on the control socket alone: " + s.config.Socket
		s.logRefused(r, text)
		http.Error(w, text, http.StatusForbidden)
	})
	mux.HandleFunc("GET /metrics", s.reading(promhttp.HandlerFor(s.newRegistry(), promhttp.HandlerOpts{}).ServeHTTP))
	if s.config.Pprof {
		mux.HandleFunc("GET /debug/pprof/", s.local(pprof.Index))
		mux.HandleFunc("GET /debug/pprof/profile", s.local(pprof.Profile))
		mux.HandleFunc("GET /debug/pprof/trace", s.local(pprof.Trace))
	}
	return mux
}

// answerReplica says whether this node is a replica, with lag=DURATION also whether its data are no older.
func (s *Server) answerReplica(w http.ResponseWriter, r *http.Request) {
	self, code := s.provider.Status().InWords().Own(), http.StatusServiceUnavailable
	text := r.URL.Query().Get("lag")
	lagMax, err := units.ParseDuration(text)
	switch {
	case text != "" && (err != nil || lagMax <= 0):
		http.Error(w, fmt.Sprintf("lag=%q is no duration: write one such as lag=2s", text), http.StatusBadRequest)
		return
	case text == "" && isReplica(self), text != "" && self.Unreadable(lagMax) == "":
		code = http.StatusOK
	}
	s.replyHealth(w, r, code, self)
}

// replyHealth answers a load balancer, which has no token and may know this host by any name. Where
// reading is not allowed, the answer is only the name, the role and yes or no.
func (s *Server) replyHealth(w http.ResponseWriter, r *http.Request, code int, self status.Node) {
	if s.closed() || rebound(r) {
		s.reply(w, code, struct {
			Name string      `json:"name"`
			Role status.Role `json:"role"`
		}{self.Name, self.Role})
		return
	}
	s.reply(w, code, self)
}

// local answers only requests from this host, because the answer is expensive.
func (s *Server) local(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !fromHere(r) {
			const text = "profiles are shown on this node's own host only"
			s.logRefused(r, text)
			http.Error(w, text, http.StatusForbidden)
			return
		}
		answer(w, r)
	}
}

func isLogger(n status.Node) bool  { return n.Role == status.RoleLogger }
func isPrimary(n status.Node) bool { return n.Role == status.RolePrimary }

// isReplica returns false for a replica without a leader, because nobody knows how old its data
// are, and for a replica whose applier has stopped, because its data get older.
func isReplica(n status.Node) bool {
	return n.Role == status.RoleReplica && n.Leader != 0 && n.ApplierStopped == ""
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
