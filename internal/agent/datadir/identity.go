package datadir

import (
	"fmt"
	"slices"

	"github.com/quorate/quorate/internal/cluster"
)

const (
	// IdentityFile is identity.json. A directory without it does not belong to quorate.
	IdentityFile = "identity.json"
	// The versions of the data directory's layout. A directory has the first version until
	// it holds something that a quorate of that version does not know.
	FormatFirst = 1
	// FormatState: the log has changes of the cluster state. An agent of the first
	// version would ignore them, or end at them.
	FormatState = 2
	formatMax   = FormatState
)

// Identity is the content of identity.json.
type Identity struct {
	Format    int    `json:"format"`
	Cluster   string `json:"cluster"`
	ClusterID uint64 `json:"cluster_id,string"`
	Node      string `json:"node"`
	NodeID    uint64 `json:"node_id,string"`
	// Instance is random: it tells this directory from any other that was ever
	// made for the same node.
	Instance string `json:"instance"`
	// Keyed: the configuration had the keys of all members when the node began here. If it had not, keys that
	// are written there later are not required before the cluster state says so.
	Keyed bool `json:"keyed,omitempty"`
	// Log: this directory has had a log. If the log is gone, so are the node's promises.
	Log bool `json:"log,omitempty"`
	// State: this directory has had a cluster.json.
	State bool `json:"state,omitempty"`
	// Joining: this node has not joined yet, and has nothing that counts.
	Joining bool `json:"joining,omitempty"`
	// Removed: the cluster has removed this node.
	Removed bool `json:"removed,omitempty"`
	// Superseded: the cluster was recovered without this node. Recovered: this node
	// belongs to a cluster that was recovered, so only its cluster.json knows the members.
	Superseded *cluster.Recovery `json:"superseded,omitempty"`
	Recovered  bool              `json:"recovered,omitempty"`
	// GivenUp names what is still in place from before the rebuild of this node; nil =
	// nothing. It is moved away before anything new is made.
	GivenUp *GivenUp `json:"given_up,omitempty"`
}

// GivenUp is what a node has given up, and has not moved away yet.
type GivenUp struct {
	// Dir is the directory, below old/, into which it is moved.
	Dir string `json:"dir"`
	// Identity is what identity.json was.
	Identity Identity `json:"identity"`
}

// Files are what is moved there, in order.
func (GivenUp) Files() []string {
	return []string{"mysql", Durable, ClusterState, Peers, Met, Heard, "log"}
}

// Life is what a data directory is to its node.
type Life string

// The lives. Unborn is the life of a directory without identity.json.
const (
	Unborn     Life = "unborn"
	Begun      Life = "begun"      // it belongs to the node, and has had no log yet
	Joining    Life = "joining"    // it has nothing that counts
	Member     Life = "member"     // it has a log
	Superseded Life = "superseded" // the cluster was recovered without it
	Removed    Life = "removed"    // the cluster has removed it
)

// follows says which lives may follow a life. A life may always follow itself.
var follows = map[Life][]Life{
	Unborn:     {Begun, Joining, Removed}, // and a member, by Found alone
	Begun:      {Member, Joining, Superseded, Removed},
	Joining:    {Member, Removed},
	Member:     {Joining, Superseded, Removed},
	Superseded: {Joining, Removed, Member}, // a member once it is recovered itself
}

// Life says in which life the node is, or what is wrong with a combination that no agent
// has ever written.
func (id Identity) Life() (Life, error) {
	switch {
	case id.State && !id.Log:
		return "", fmt.Errorf("it is contradictory: the node has a cluster state, but no log")
	case id.Joining && (id.Log || id.Superseded != nil):
		return "", fmt.Errorf("it is contradictory: the node joins, but has a log, or was left behind by a recovery")
	case id.GivenUp != nil && !id.Joining:
		return "", fmt.Errorf("it is contradictory: the node gives up its data, but does not join")
	case id.Recovered && !id.State && !id.Joining:
		return "", fmt.Errorf("it is contradictory: its cluster was recovered, but it has no cluster state")
	case id.Removed:
		return Removed, nil
	case id.Joining:
		return Joining, nil
	case id.Superseded != nil:
		return Superseded, nil
	case id.Log:
		return Member, nil
	}
	return Begun, nil
}

// AsMember is the identity of a node that begins with a log and a cluster state. recovered: its cluster was
// recovered.
func (id Identity) AsMember(recovered bool) Identity {
	id.Joining, id.Log, id.State, id.Superseded, id.Recovered = false, true, true, nil, recovered
	return id
}

var identityRules = File{Name: IdentityFile, Format: formatMax, Remedy: "put it back, or move the data directory away and rebuild this node"}

// Identity reads identity.json; found=false: there is none.
func (d Dir) Identity() (id Identity, found bool, err error) {
	if found, err = d.Load(identityRules, &id); err != nil || !found {
		return Identity{}, found, err
	}
	if _, err := id.Life(); err != nil {
		return Identity{}, true, d.damaged(identityRules, err.Error())
	}
	return id, true, nil
}

// WriteIdentity makes the next life durable, or a change within the same life. It refuses
// a life that cannot follow the life on disk.
func (d Dir) WriteIdentity(next Identity) error { return d.writeIdentity(next, follows[Unborn]) }

// Found is WriteIdentity for a directory that becomes a member's at once, because it was adopted or restored. A
// node that runs never does that: if its directory has no identity, the disk is gone.
func (d Dir) Found(next Identity) error { return d.writeIdentity(next, []Life{Member}) }

// writeIdentity writes the next life. born are the lives that it may be if there is no identity.
func (d Dir) writeIdentity(next Identity, born []Life) error {
	before, found, err := d.Identity()
	if err != nil {
		return err
	}
	from, may := Unborn, born
	if found {
		from, _ = before.Life() // Identity has checked it
		may = follows[from]
	}
	to, err := next.Life()
	if err == nil && from != to && !slices.Contains(may, to) {
		err = fmt.Errorf("a node that is %s does not become %s", from, to)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", d.Join(IdentityFile), err)
	}
	return d.replace(IdentityFile, next)
}
