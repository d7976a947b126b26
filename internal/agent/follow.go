package agent

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// followingNode is this node as package following asks it.
type followingNode struct{ *Agent }

// Committed and what follows implement following.Node.
func (n followingNode) Committed() (*cluster.Follow, uint64) {
	state := n.Raft.Committed().State().State
	return state.Follow, state.Version
}

func (n followingNode) Serving() (*mysqld.Process, uint64) {
	if !n.serves() {
		return nil, 0
	}
	return n.currentProcess(), n.Raft.Role().Term
}

func (n followingNode) Own() status.Node         { return n.board.Own() }
func (n followingNode) Changed() <-chan struct{} { return n.board.Changes() }
func (n followingNode) Wake()                    { n.board.Wake() }
func (n followingNode) Show(text string) {
	n.board.Update(func(s *status.Node) { s.Follow = text })
}

func (n followingNode) ReplicaName() (serverID uint32, uuid string) {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte("quorate-follow\x00"), n.cfg.ClusterID()))
	return 1<<30 | binary.LittleEndian.Uint32(sum[16:])&(1<<30-1), gtid.UUID(sum[:16]).String()
}

func (n followingNode) Withheld(text string) bool { return withheld(text) }

// withheld tells whether a statement grants what no account has here.
func withheld(text string) bool { return binlog.IsACLStatement(text) && grantsDump.MatchString(text) }

// SetSuperReadOnly implements primary.Writable: while the cluster follows a source, a primary is open for that alone.
func (s localServer) SetSuperReadOnly(ctx context.Context, on bool, lockWait time.Duration) error {
	if on {
		return s.Admin.SetSuperReadOnly(ctx, true, lockWait)
	}
	clients := s.agent.Raft.Committed().State().State.Follow == nil
	open := s.OpenForAgent
	if clients {
		open = func(ctx context.Context, lockWait time.Duration) error {
			return s.Admin.SetSuperReadOnly(ctx, false, lockWait)
		}
	}
	err := open(ctx, lockWait)
	if err == nil {
		s.agent.following.Opened(clients)
	}
	return err
}
