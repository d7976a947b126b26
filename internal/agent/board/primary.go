package board

import (
	"fmt"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// LastPrimary is the newest sign of a primary, another node or this one. The zero value:
// there was none since this agent started.
type LastPrimary struct {
	Name string
	At   time.Time
	// Fate says what has become of it, as far as this node can know; "" = this node was the
	// primary, and says itself why it left.
	Fate string
}

// primarySign is what the board keeps of the newest sign of a primary; id 0 = there was none.
type primarySign struct {
	id   cluster.NodeID
	name string
	term uint64
	at   time.Time
	// lost: the connection to it has ended since. From then on only a status that says that
	// it is the primary is a sign.
	lost bool
}

// Served notes that this node was the primary of a term until now.
func (b *Board) Served(term uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if term >= b.last.term {
		b.last = primarySign{id: b.self.ID, name: b.self.Name, at: b.cfg.Now(), term: term}
	}
}

// LastPrimary returns who was the primary last, as far as it was heard.
func (b *Board) LastPrimary() LastPrimary {
	b.mu.Lock()
	defer b.mu.Unlock()
	return LastPrimary{Name: b.last.name, At: b.last.at, Fate: b.fate()}
}

// fate is the Fate in LastPrimary. b.mu is held.
func (b *Board) fate() string {
	sign, p := b.last, b.peers[b.last.id]
	switch {
	case sign.id == 0, sign.id == b.self.ID:
		return ""
	case !p.up:
		return fmt.Sprintf("the agent of %s is gone: its process or its host died", sign.name)
	case p.status.Role != status.RolePrimary && p.status.Reason != "":
		why, _, _ := strings.Cut(p.status.Reason, "; ") // what else ails it comes behind
		return fmt.Sprintf("%s: %s", sign.name, why)
	case sign.lost:
		return fmt.Sprintf("%s was gone: its agent or its host died, or the network failed; it is back", sign.name)
	}
	return fmt.Sprintf("%s was not heard for %s", sign.name, b.cfg.Now().Sub(sign.at).Round(10*time.Millisecond))
}
