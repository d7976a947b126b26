package join

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/sys/clock"
)

// emptyAskEvery is the pause before a node with an empty data directory asks again.
const emptyAskEvery = 500 * time.Millisecond

// ErrNotEmpty means that the data directory has an identity now: its disk was mounted meanwhile, for example.
var ErrNotEmpty = errors.New("is not empty any more: this node starts again")

// Newcomer is a node with an empty data directory.
type Newcomer interface {
	// Introduce shakes hands with every peer once.
	Introduce(ctx context.Context) transport.Introduction
	// Begun tells whether the directory is not empty any more.
	Begun() bool
	// Waits shows why the node does not begin yet.
	Waits(as status.Role, reason string)
}

// Introduction is how a node with an empty data directory asks whether it may begin. Otherwise a
// cluster that has lived could begin a second time while some disks are not mounted.
type Introduction struct {
	Node   Newcomer
	Clock  clock.Clock
	Logger *slog.Logger
	// Knocks checks the nodes that dial this one meanwhile. Listen is how long this node still waits
	// for knocks after all initial members have answered: by then each of them listens, too.
	Knocks *Knocks
	Listen time.Duration
	// Dir names the directory. Joins: the node is configured to join. Bootstrap: an operator
	// says that the cluster is new. Alone: the configuration names no other initial member.
	Dir                     string
	Joins, Bootstrap, Alone bool
}

// Run asks again and again, until the node may begin, or has to end. refused: it may not begin.
func (i Introduction) Run(ctx context.Context) (refused *transport.RejectedError, err error) {
	words := map[string]*transport.RejectedError{} // by peer: a peer that is away now may have said that this node has lost its data
	all, known := i.Clock.Now(), i.Bootstrap       // since when all answer
	for said := ""; ; {
		asked := i.Clock.Now()
		got := i.withoutAdded(i.Node.Introduce(ctx))
		if answer := i.Bootstrap || len(got.Silent) == 0; answer != known {
			all, known = i.Clock.Now(), answer
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case i.Node.Begun():
			return nil, fmt.Errorf("data directory %s %w", i.Dir, ErrNotEmpty)
		}
		got.Rejections = remember(words, got)
		over, role, reason := i.decide(got, asked-all)
		r := i.weightiest(got.Rejections)
		if over && i.Joins {
			return nil, nil // a node that joins is not known before it was added; Joiner does the rest
		}
		if over {
			return r, nil
		}
		if reason != said && reason != "" {
			said = reason
			i.Logger.Warn("this node has an empty data directory, and does not begin yet", "reason", reason)
			i.Node.Waits(role, reason)
		}
		if err := i.Clock.Wait(ctx, emptyAskEvery, nil); err != nil {
			return nil, err
		}
	}
}

// remember returns the rejections that count: each peer's newest word. What a person can end (CodePeer)
// counts only while it is said. A peer whose own directory is empty now takes nothing back: it has
// forgotten what it said.
func remember(words map[string]*transport.RejectedError, got transport.Introduction) []*transport.RejectedError {
	for _, name := range got.Welcomes {
		delete(words, name)
	}
	for _, r := range got.Rejections {
		delete(words, r.By)
		if r.Code != transport.CodePeer {
			words[r.By] = r
		}
	}
	all := slices.DeleteFunc(slices.Clone(got.Rejections), func(r *transport.RejectedError) bool { return r.Code != transport.CodePeer })
	for _, name := range slices.Sorted(maps.Keys(words)) {
		all = append(all, words[name])
	}
	return all
}

// withoutAdded takes the added members out of those that are silent or empty, and, if this node does not
// join, of those that welcome it: the node does not wait for them. Their rejections count.
func (i Introduction) withoutAdded(got transport.Introduction) transport.Introduction {
	added := func(name string) bool { return slices.Contains(i.Knocks.Added, name) }
	got.Empty, got.Silent = slices.DeleteFunc(got.Empty, added), slices.DeleteFunc(got.Silent, added)
	if !i.Joins {
		got.Welcomes = slices.DeleteFunc(got.Welcomes, added)
	}
	return got
}

// weightiest is the rejection that counts; nil = there is none. A node with an empty directory
// knows nothing. A member that has not heard yet that the node was added counts only if no member
// knows more.
func (i Introduction) weightiest(rejections []*transport.RejectedError) *transport.RejectedError {
	without := func(c transport.Code) []*transport.RejectedError {
		return slices.DeleteFunc(slices.Clone(rejections), func(r *transport.RejectedError) bool { return r.Code == c })
	}
	rejections = without(transport.CodeEmpty)
	for _, c := range []transport.Code{transport.CodeUnknown, transport.CodeKey} {
		if known := without(c); i.Joins && len(known) > 0 {
			rejections = known
		}
	}
	return membership.Weightiest(rejections)
}

// sought says which node with data looks for this node, or for another node whose directory is empty, too:
// a member that knocks may reach only that one. "" = none.
func (i Introduction) sought(rejections []*transport.RejectedError) string {
	if by := i.Knocks.By(); by != "" {
		return fmt.Sprintf("node %s, which has data, looks for this node: the cluster is not new", by)
	}
	for _, r := range rejections {
		if r.Code == transport.CodeEmpty && r.Text != "" { // a node with a wrong key gets no text
			return r.Error()
		}
	}
	return ""
}

// doubtful says which nodes are there but are not heard, and why; "" = none.
func doubtful(doubts map[string]string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(doubts)) {
		texts = append(texts, fmt.Sprintf("node %s is not heard: %s", name, doubts[name]))
	}
	return strings.Join(texts, "; ")
}

// decide tells whether the node has heard enough: got is what the others said, with all rejections that
// count; listened is for how long they all have listened. If not, the node waits in this role, for this
// reason.
func (i Introduction) decide(got transport.Introduction, listened time.Duration) (over bool, role status.Role, reason string) {
	r, sought := i.weightiest(got.Rejections), i.sought(got.Rejections)
	empty := fmt.Sprintf("data directory %s is empty, and ", i.Dir)
	who, have := "node ", " has "
	if len(got.Silent) > 1 {
		who, have = "nodes ", " have "
	}
	silent := who + strings.Join(got.Silent, ", ") + have + "not answered yet"
	doubts := doubtful(got.Doubts)
	switch {
	case r != nil && (r.Code == transport.CodeReseed || r.Code == transport.CodeRecovered || i.Joins && r.Code == transport.CodePeer):
		return false, status.RoleJoining, r.Text // until it is rebuilt
	case r != nil || i.Joins && len(got.Welcomes) > 0:
		return true, "", ""
	case i.Joins && len(got.Silent) == 0:
		return false, status.RoleJoining, empty + "so are those of the initial members: this node waits until they have begun"
	case i.Joins && doubts != "":
		return false, status.RoleJoining, empty + silent + ": " + doubts
	case i.Joins:
		return false, status.RoleJoining, empty + silent + ": this node has to ask them. Start the agent there, or look at the addresses in the configuration"
	case sought != "" && len(got.Welcomes) == 0: // an initial member that has begun knows whether this node was there before
		if doubts != "" { // it keeps the node out, too
			sought += "; and " + doubts
		}
		return false, status.RoleForming, empty + sought + ". Mount the disk here if it is missing; " +
			"if its data is lost, name the members that were added later in the configuration, each in an [[added]], and start this agent again"
	case doubts != "":
		return false, status.RoleForming, empty + doubts + ". Until that is mended this node does not begin, not even with --bootstrap"
	case i.Bootstrap:
	case i.Alone:
		return false, status.RoleForming, empty + "the configuration names no other initial member that could know whether this node had data before. " +
			"If this cluster is new, start this agent with --bootstrap, once; if it has grown, mount the disk, " +
			"or name its other members in the configuration, each in an [[added]]"
	case len(got.Silent) > 0:
		return false, status.RoleForming, empty + silent + "; an answer may say that this node had data before: " +
			"a cluster begins once all of its members have answered. Start the agent there; mount the disk here if it is missing; " +
			"if this cluster is new and cannot wait, start this agent with --bootstrap"
	}
	return listened >= i.Listen, status.RoleForming, ""
}
