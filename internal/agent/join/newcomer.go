package join

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

// emptyAskEvery is the pause before a node with an empty data directory asks again.
const emptyAskEvery = 500 * time.Millisecond

// ErrNotEmpty means that somebody else has begun in the data directory meanwhile.
var ErrNotEmpty = errors.New("is not empty any more: this node starts again")

// Newcomer is a node with an empty data directory.
type Newcomer interface {
	// Introduce shakes hands with every peer once.
	Introduce(ctx context.Context) transport.Introduction
	// Begun tells whether the directory is not empty any more.
	Begun() bool
	// Waits shows why the node does not begin so far.
	Waits(as status.Role, reason string)
}

// Introduction is how a node with an empty data directory asks whether it may begin: a cluster
// that has lived would begin anew otherwise, because some disks are not mounted.
type Introduction struct {
	Node   Newcomer
	Clock  clock.Clock
	Logger *slog.Logger
	// Dir names the directory. Joins: the node is configured to join. Bootstrap: an operator
	// says that the cluster is new.
	Dir              string
	Joins, Bootstrap bool
}

// Run asks again and again, until the node may begin, or ends. refused: it may not.
func (i Introduction) Run(ctx context.Context) (refused *transport.RejectedError, err error) {
	var lost *transport.RejectedError // whoever said that this node has lost its data may be away now: it is none the less so
	for said := ""; ; {
		got := i.Node.Introduce(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case i.Node.Begun():
			return nil, fmt.Errorf("data directory %s %w", i.Dir, ErrNotEmpty)
		}
		if lost != nil {
			got.Rejections = append(got.Rejections, lost)
		}
		r := membership.Weightiest(got.Rejections)
		over, role, reason := i.judge(r, got.Silent)
		if over && i.Joins {
			return nil, nil // who joins is not known before it was added; Joiner knows the rest
		}
		if over {
			return r, nil
		}
		if r != nil && r.Code != transport.CodePeer {
			lost = r
		}
		if reason != said {
			said = reason
			i.Logger.Warn("this node has an empty data directory, and does not begin so far", "reason", reason)
			i.Node.Waits(role, reason)
		}
		if err := i.Clock.Wait(ctx, emptyAskEvery, nil); err != nil {
			return nil, err
		}
	}
}

// judge tells whether the node has heard enough: r is the weightiest rejection by its peers,
// silent are those that said nothing. Otherwise it waits, in a role, for a reason.
func (i Introduction) judge(r *transport.RejectedError, silent []string) (over bool, role status.Role, reason string) {
	switch {
	case r != nil && (r.Code == transport.CodeReseed || r.Code == transport.CodeRecovered || i.Joins && r.Code == transport.CodePeer):
		return false, status.RoleJoining, r.Text // until it is rebuilt
	case r != nil || i.Joins || i.Bootstrap || len(silent) == 0:
		return true, "", ""
	}
	who := "node " + silent[0] + " has"
	if len(silent) > 1 {
		who = "nodes " + strings.Join(silent, ", ") + " have"
	}
	return false, status.RoleForming, fmt.Sprintf("data directory %s is empty, and %s not answered so far, which may know that it was not: "+
		"a cluster begins once all of its members have answered. Start the agent there; mount the disk here if it is missing; "+
		"if this cluster is new and cannot wait, start this agent with --bootstrap", i.Dir, who)
}
