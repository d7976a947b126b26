package agent

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/agent/routing"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/routermeta"
	"github.com/quorate/quorate/internal/sys/clock"
	"github.com/quorate/quorate/internal/sys/metrics"
)

const (
	// aboutMySQLRouter keys what keeps MySQL Router from knowing the members, among the board's troubles.
	aboutMySQLRouter = "mysql-router"
	// mysqlRouterLook is how often the members are looked at when nothing wakes.
	mysqlRouterLook = 500 * time.Millisecond
	// mysqlRouterTimeout bounds a write: behind it waits nothing but the next one.
	mysqlRouterTimeout = 5 * time.Second
)

// mysqlRouter is what this node tells MySQL Router while it is the primary.
type mysqlRouter struct {
	keeper routing.Keeper // runMySQLRouter's

	mu               sync.Mutex
	is               routermeta.Metadata
	writes, failures uint64
}

// runMySQLRouter keeps the metadata by which MySQL Router finds the members, while this node is the primary.
func (a *Agent) runMySQLRouter(ctx context.Context) error {
	c := clock.Machine{}
	for {
		changed := a.board.Changes()
		a.tellMySQLRouter(ctx, c)
		if c.Wait(ctx, mysqlRouterLook, changed) != nil {
			return nil
		}
	}
}

func (a *Agent) tellMySQLRouter(ctx context.Context, c clock.Clock) {
	t, p := &a.told, a.currentProcess()
	// A site that follows another one has no transactions of its own.
	if f := a.board.State().Follow; p == nil || !a.serves() || f != nil && f.Site != "" {
		t.keeper.Reset()
		t.note(routermeta.Metadata{}, false, nil)
		a.board.SetTrouble(aboutMySQLRouter, "")
		return
	}
	s := routing.Sight{
		Now: c.Now(), Term: a.Raft.Role().Term, Self: a.self.ID, ClusterID: a.mysqlRouterCluster(), Cluster: a.cfg.Cluster,
		State: a.board.State(), Nodes: a.board.Nodes(),
	}
	if !t.keeper.Look(s) {
		return
	}
	wrote, err := a.updateMetadata(ctx, p, s)
	trouble := ""
	switch {
	case err != nil:
		trouble = fmt.Sprintf("MySQL Router is not told of the members: %v", err)
	case s.State.MySQLRouter:
		trouble = routing.Unreachable(s)
	}
	if a.board.SetTrouble(aboutMySQLRouter, trouble) && trouble != "" {
		a.logger.Warn(trouble)
	}
	if wrote {
		is := t.keeper.Is()
		a.logger.Info("MySQL Router is told of the members", "view", is.View, "primary", is.Primary(), "instances", fmt.Sprint(is.Instances))
	}
}

// updateMetadata makes the metadata what it should be.
func (a *Agent) updateMetadata(ctx context.Context, p *mysqld.Process, s routing.Sight) (wrote bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, mysqlRouterTimeout)
	defer cancel()
	t, is := &a.told, routermeta.Metadata{}
	db, err := p.OpenOwnSchemas()
	if err == nil {
		defer func() { _ = db.Close() }()
		is, wrote, err = routermeta.New(db).Update(ctx, s.State.MySQLRouter, func(found routermeta.Metadata) routermeta.Metadata {
			return t.keeper.Want(s, found)
		})
	}
	if err != nil {
		t.keeper.Failed(s.Now)
	} else {
		t.keeper.Wrote(is, wrote, s.Now)
	}
	t.note(is, wrote, err)
	return wrote, err
}

// mysqlRouterCluster names the cluster to MySQL Router, which keeps it in its files.
func (a *Agent) mysqlRouterCluster() string {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte("quorate-mysql-router\x00"), a.cfg.ClusterID()))
	return gtid.UUID(sum[:16]).String()
}

// note keeps what the metrics show.
func (t *mysqlRouter) note(is routermeta.Metadata, wrote bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.is = is
	if wrote {
		t.writes++
	}
	if err != nil {
		t.failures++
	}
}

// metrics are about what a primary tells MySQL Router; of other nodes the gauges are 0.
func (t *mysqlRouter) metrics() []metrics.Sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	hidden := 0
	for _, i := range t.is.Instances {
		if i.Hidden {
			hidden++
		}
	}
	return []metrics.Sample{
		metrics.Of("quorate_mysql_router_view", uint64(t.is.View)),
		metrics.Of("quorate_mysql_router_instances", len(t.is.Instances)),
		metrics.Of("quorate_mysql_router_hidden", hidden),
		metrics.Of("quorate_mysql_router_writes_total", t.writes),
		metrics.Of("quorate_mysql_router_failures_total", t.failures),
	}
}
