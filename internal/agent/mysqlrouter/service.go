package mysqlrouter

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/routing"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/routermeta"
	"github.com/quorate/quorate/internal/sys/clock"
	"github.com/quorate/quorate/internal/sys/metrics"
)

const (
	// about is the key, among the board's troubles, of what keeps MySQL Router from knowing the members.
	about = "mysql-router"
	// writeTimeout bounds a write.
	writeTimeout = 5 * time.Second
)

// Update makes the metadata in mysqld what want returns for those that it finds there. on: there should be metadata.
// It returns what is there now, and whether it has written.
type Update func(ctx context.Context, on bool, want func(found routermeta.Metadata) routermeta.Metadata) (is routermeta.Metadata, wrote bool, err error)

// Config is what a Service needs.
type Config struct {
	Board *board.Board
	Self  cluster.NodeID
	// Cluster is the cluster's name, ClusterID its number.
	Cluster   string
	ClusterID uint64
	// Serves tells whether this node is the primary, in Term, and clients reach its mysqld.
	Serves func() bool
	Term   func() uint64
	Update Update
	// Impatient names the Routers that wait for less than least until a replica has a session's own writes, or may
	// not wait at all.
	Impatient func(ctx context.Context, least time.Duration) (names []string, err error)
	Logger    *slog.Logger
}

// Service tells MySQL Router of the members. Make one with New.
type Service struct {
	Config
	keeper routing.Keeper // only Run uses it

	mu               sync.Mutex
	is               routermeta.Metadata
	writes, failures uint64
}

// New returns the Service of a node. It starts nothing.
func New(c Config) *Service { return &Service{Config: c} }

// Run keeps the metadata until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	for c := (clock.Machine{}); ; {
		changed := s.Board.Changes()
		s.keep(ctx, c.Now())
		if c.Wait(ctx, s.keeper.Next(), changed) != nil {
			return nil
		}
	}
}

func (s *Service) keep(ctx context.Context, now time.Duration) {
	state := s.Board.State()
	// A site that follows another one has no transactions of its own.
	if f := state.Follow; !s.Serves() || f != nil && f.Site != "" {
		s.keeper.Reset()
		s.note(routermeta.Metadata{}, false, nil)
		s.Board.SetTrouble(about, "")
		return
	}
	sight := routing.Sight{
		Now: now, Term: s.Term(), Self: s.Self, ClusterID: uuid(s.ClusterID), Cluster: s.Cluster, State: state, Nodes: s.Board.Nodes(),
	}
	if !s.keeper.Look(sight) {
		return
	}
	wrote, err := s.update(ctx, sight)
	trouble := s.trouble(ctx, sight, err)
	if s.Board.SetTrouble(about, trouble) && trouble != "" {
		s.Logger.Warn(trouble)
	}
	if wrote {
		is := s.keeper.Is()
		s.Logger.Info("MySQL Router is told of the members", "view", is.View, "primary", is.Primary(), "instances", fmt.Sprint(is.Instances))
	}
}

// trouble says what is in the way of Router or its clients, after an update that ended with err; "" = nothing.
func (s *Service) trouble(ctx context.Context, sight routing.Sight, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("MySQL Router is not told of the members: %v", err)
	case !sight.State.MySQLRouter:
		return ""
	}
	if text := routing.Unreachable(sight); text != "" {
		return text
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	names, err := s.Impatient(ctx, routing.OwnWritesLeast)
	if err != nil {
		return fmt.Sprintf("what MySQL Routers say of themselves cannot be read: %v", err)
	}
	return routing.Impatient(names)
}

// update makes the metadata what they should be.
func (s *Service) update(ctx context.Context, sight routing.Sight) (wrote bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	is, wrote, err := s.Update(ctx, sight.State.MySQLRouter, func(found routermeta.Metadata) routermeta.Metadata {
		return s.keeper.Want(sight, found)
	})
	if err != nil {
		s.keeper.Failed(sight.Now)
	} else {
		s.keeper.Wrote(is, wrote, sight.Now)
	}
	s.note(is, wrote, err)
	return wrote, err
}

// uuid names the cluster to MySQL Router, which keeps it in its files.
func uuid(clusterID uint64) string {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte("quorate-mysql-router\x00"), clusterID))
	return gtid.UUID(sum[:16]).String()
}

// note keeps what the metrics show.
func (s *Service) note(is routermeta.Metadata, wrote bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is = is
	if wrote {
		s.writes++
	}
	if err != nil {
		s.failures++
	}
}

// Metrics are about what a primary tells MySQL Router; of other nodes the gauges are 0.
func (s *Service) Metrics() []metrics.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	hidden := 0
	for _, i := range s.is.Instances {
		if i.Hidden {
			hidden++
		}
	}
	return []metrics.Sample{
		metrics.Of("quorate_mysql_router_view", uint64(s.is.View)),
		metrics.Of("quorate_mysql_router_instances", len(s.is.Instances)),
		metrics.Of("quorate_mysql_router_hidden", hidden),
		metrics.Of("quorate_mysql_router_writes_total", s.writes),
		metrics.Of("quorate_mysql_router_failures_total", s.failures),
	}
}
