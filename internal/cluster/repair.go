package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/config/units"
)

// This file says what a cluster does by itself with a node that cannot go on with its data. It is the same as
// an operator's "node rebuild", done by a leader that sees the reason.

// Reseed says what happens to a member that comes back without its data directory.
type Reseed string

// The reseed policies.
const (
	// ReseedAuto: it is rebuilt. The zero value means this, too.
	ReseedAuto Reseed = "auto"
	// ReseedManual: it is refused until an operator has it rebuilt.
	ReseedManual Reseed = "manual"
)

// ErrantPolicy says what happens to a node whose mysqld has transactions that the cluster never committed.
type ErrantPolicy string

// The policies for errant nodes.
const (
	// ErrantKeep: it is fenced, and kept as it is. The zero value means this, too.
	ErrantKeep ErrantPolicy = "keep"
	// ErrantRebuild: it is rebuilt once all these transactions were saved.
	ErrantRebuild ErrantPolicy = "rebuild"
)

// RetainBytesMin is the least bound on the log that is kept for a node that is away: some segments. With less,
// the first pause would cost a node its data.
const RetainBytesMin = 64 << 20

// Bounds of what the cluster does by itself.
const (
	// repairSilence is how long a member must be silent before it counts as gone. So a live member is never
	// rebuilt because another agent came under its name.
	repairSilence = 10 * time.Second
	// retainSilence is the same for a member because of which the log has grown too long: a rolling restart
	// takes less. It also holds for a member that is there, and stopped. A member whose mysqld starts has
	// retainStarting: InnoDB's recovery takes minutes.
	retainSilence  = time.Minute
	retainStarting = 10 * time.Minute
	// A leader rebuilds a node by itself at most RepairsMax times within repairsWithin, with repairPause in
	// between. A node that needs more has a problem that no rebuild mends.
	repairsWithin = 24 * time.Hour
	repairPause   = 10 * time.Minute
)

// RepairsMax is how often a leader rebuilds a node by itself within a day.
const RepairsMax = 3

// SettingsChange changes settings of the whole cluster: those that are not nil.
type SettingsChange struct {
	Durability *Durability   `json:"durability,omitempty"`
	Reseed     *Reseed       `json:"reseed,omitempty"`
	Errant     *ErrantPolicy `json:"errant,omitempty"`
	// RetainBytesMax: if the log is longer than this, a member that is away is not waited for; 0 = no bound.
	RetainBytesMax *int64 `json:"retain_bytes_max,omitempty"`
	// PeerSecurity can only be raised, by one step at a time.
	PeerSecurity *PeerSecurity `json:"peer_security,omitempty"`
	MySQLRouter  *bool         `json:"mysql_router,omitempty"`
	EventsOff    *bool         `json:"events_off,omitempty"`
}

// Change returns the Change for these settings. If older nodes know a form of it, that form is used: then they
// can describe it to people.
func (c SettingsChange) Change() Change {
	if c.Durability != nil && c == (SettingsChange{Durability: c.Durability}) {
		return Change{Durability: c.Durability}
	}
	return Change{Settings: &c}
}

// String says in one line what is set.
func (c SettingsChange) String() string {
	var said []string
	if c.Durability != nil {
		said = append(said, "durability "+string(*c.Durability))
	}
	if c.Reseed != nil {
		said = append(said, "reseed "+string(*c.Reseed))
	}
	if c.Errant != nil {
		said = append(said, "errant "+string(*c.Errant))
	}
	switch {
	case c.RetainBytesMax != nil && *c.RetainBytesMax == 0:
		said = append(said, "retain-max off")
	case c.RetainBytesMax != nil:
		said = append(said, "retain-max "+units.Size(*c.RetainBytesMax))
	}
	if c.PeerSecurity != nil {
		said = append(said, "peer-security "+string(*c.PeerSecurity))
	}
	if c.MySQLRouter != nil {
		said = append(said, "router "+OnOff(*c.MySQLRouter))
	}
	if c.EventsOff != nil {
		said = append(said, "events "+OnOff(!*c.EventsOff))
	}
	return strings.Join(said, ", ")
}

// OnOff is the word for a setting that is on or off.
func OnOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func (s *State) setSettings(c SettingsChange) (changed bool, err error) {
	before := s.settings()
	switch {
	case c == SettingsChange{}:
		return false, errors.New("the change names no setting of the cluster")
	case c.Reseed != nil && *c.Reseed != ReseedAuto && *c.Reseed != ReseedManual:
		return false, fmt.Errorf("reseed must be %s or %s, not %q", ReseedAuto, ReseedManual, *c.Reseed)
	case c.Errant != nil && *c.Errant != ErrantKeep && *c.Errant != ErrantRebuild:
		return false, fmt.Errorf("errant must be %s or %s, not %q", ErrantKeep, ErrantRebuild, *c.Errant)
	case c.RetainBytesMax != nil && *c.RetainBytesMax != 0 && *c.RetainBytesMax < RetainBytesMin:
		return false, fmt.Errorf("retain-max must be %s at least, or off, not %s", units.Size(RetainBytesMin), units.Size(*c.RetainBytesMax))
	}
	if c.PeerSecurity != nil {
		if err := s.setPeerSecurity(*c.PeerSecurity); err != nil {
			return false, err
		}
	}
	set(&s.Durability, c.Durability)
	set(&s.Reseed, c.Reseed)
	set(&s.Errant, c.Errant)
	set(&s.RetainBytesMax, c.RetainBytesMax)
	set(&s.MySQLRouter, c.MySQLRouter)
	set(&s.EventsOff, c.EventsOff)
	if s.Reseed == ReseedAuto { // then a state without the setting is equal to this one
		s.Reseed = ""
	}
	if s.Errant == ErrantKeep {
		s.Errant = ""
	}
	return s.settings() != before, nil
}

type settings struct {
	durability     Durability
	reseed         Reseed
	errant         ErrantPolicy
	retainBytesMax int64
	peerSecurity   PeerSecurity
	mysqlRouter    bool
	eventsOff      bool
}

func (s State) settings() settings {
	return settings{s.Durability, s.Reseed, s.Errant, s.RetainBytesMax, s.PeerSecurity, s.MySQLRouter, s.EventsOff}
}

// StateFormat is the newest format of a state that this quorate knows. A node that knows only an older one
// would lose the rest at its next change.
const StateFormat = 9

// Format is the format that a node has to know to keep the whole of this state.
func (s State) Format() int {
	if s.Closing != nil || s.CutOver != nil {
		return 9
	}
	if s.Site != nil || s.SiteBallot != (Ballot{}) || s.Follow != nil && s.Follow.Site != "" {
		return 8
	}
	if s.Follow != nil {
		return 7
	}
	if s.EventsOff {
		return 6
	}
	if s.MySQLRouter {
		return 5
	}
	if len(s.Variables) > 0 {
		return 4
	}
	keyed := slices.ContainsFunc(s.Members, func(m Member) bool { return m.Key != "" || m.NextKey != "" })
	if keyed || s.PeerSecurity != PeersPlain {
		return 3
	}
	sourced := slices.ContainsFunc(s.Members, func(m Member) bool { return m.Source != "" })
	if s.Reseed != "" || s.Errant != "" || s.RetainBytesMax != 0 || sourced || s.Recovered != nil {
		return 2
	}
	return 1
}

// RepairSight is what a leader knows of one member.
type RepairSight struct {
	// Silence is for how long the member's agent was not heard with its data directory; if it never was, for
	// how long this node has led.
	Silence time.Duration
	// Still is for how long the agent was there while its mysqld did not follow the log, or while the agent refused
	// the cluster state. Stopped says why, if that does not pass by itself.
	Still   time.Duration
	Stopped string
	// Empty: an agent with this name and an empty data directory has just asked.
	Empty bool
	// Errant: its mysqld has transactions that were never committed; Saved: all of them are in errant/.
	Errant, Saved bool
	// LogBytes is the length of the leader's log. Holds: the log is not purged because of this member.
	LogBytes int64
	Holds    bool
	// Gone are the members that have been silent for long (Silent).
	Gone []NodeID
	// Leaving: it was told to begin again with nothing, and has not done so yet. Short: it lacks entries that
	// the leader's log does not have any more, so it can never get them.
	Leaving, Short bool
	// Repairs are how long ago this leader had it rebuilt by itself, the newest last. The last RepairsMax of
	// them are enough.
	Repairs []time.Duration
}

// Silent tells whether a member has been silent for so long that others do not wait for it.
func (s RepairSight) Silent() bool { return s.Silence >= retainSilence }

// Away says why nobody waits for a member because of which the log has grown too long; "" = it is waited for.
func (s RepairSight) Away() string {
	switch {
	case s.Silent():
		return "it is away"
	case s.Stopped != "" && s.Still >= retainSilence:
		return s.Stopped
	case s.Still >= retainStarting:
		return "its mysqld does not get ready"
	}
	return ""
}

// Repair says why a leader rebuilds a member now, by itself; "" = it does not. If there is a reason but
// something prevents it, held says what. Whether the cluster would keep its majority is checked when the change
// is made.
func (s State) Repair(m Member, sight RepairSight) (why, held string) {
	switch {
	case sight.Leaving: // a rebuild is under way
		return "", ""
	case sight.Short && m.Rebuilding() && !sight.Errant:
		why = "it lacks entries that the log no longer has"
	case sight.Empty && s.Reseed != ReseedManual && sight.Silence >= repairSilence:
		why = "it has come back with an empty data directory"
	case sight.Errant && sight.Saved && s.Errant == ErrantRebuild:
		why = "it is errant, and what it had beyond the log is saved"
	case s.RetainBytesMax > 0 && sight.LogBytes > s.RetainBytesMax && sight.Holds && sight.Away() != "":
		if sight.Errant && !sight.Saved {
			return "", "what it has beyond the log is not all saved"
		}
		why = fmt.Sprintf("%s, and the log that is kept for it has %s, more than %s", sight.Away(), units.Size(sight.LogBytes), units.Size(s.RetainBytesMax))
	default:
		return "", ""
	}
	if held = s.repairHeld(m, sight); held != "" {
		return "", held
	}
	return why, ""
}

// repairHeld says why a member is not rebuilt although there is a reason; "" = nothing prevents it.
func (s State) repairHeld(m Member, sight RepairSight) string {
	if s.Maintenance != nil {
		return "maintenance is on"
	}
	rebuilding := 0
	for _, other := range s.Members {
		switch {
		case other.ID == m.ID || !other.Rebuilding():
		case slices.Contains(sight.Gone, other.ID): // it may never come back
			rebuilding++
		default:
			return fmt.Sprintf("node %s is being rebuilt", other.Name)
		}
	}
	times, voters := len(sight.Repairs), len(s.Voters())
	switch {
	// A person has to decide whether to go on without a node for which OKs wait, or to wait until it is back.
	case m.RequireAck && m.DropAfter == 0:
		return "OKs wait for it, because of its require-ack"
	case m.Votes() && s.Durability == DurabilityAll:
		return "OKs wait for it, because of durability all"
	case m.Votes() && voters <= 2:
		return "only one node would have a vote then"
	case m.Votes() && 2*(voters-1) <= voters+rebuilding:
		return fmt.Sprintf("only %d of %d nodes would have a vote then", voters-1, voters+rebuilding)
	case times >= RepairsMax && sight.Repairs[times-RepairsMax] < repairsWithin:
		return fmt.Sprintf("the leader has rebuilt it %d times within %s", RepairsMax, units.Duration(repairsWithin))
	case times > 0 && sight.Repairs[times-1] < repairPause:
		return fmt.Sprintf("the leader rebuilt it less than %s ago", units.Duration(repairPause))
	}
	return ""
}

// Format is the format that a node has to know for a change.
func (c Change) Format() int {
	if c.Site != nil {
		return 8
	}
	if c.Follow != nil && (c.Follow.closing() || c.Follow.Cutover) {
		return 9
	}
	if c.Follow != nil {
		return 7
	}
	if c.Settings != nil && c.Settings.EventsOff != nil {
		return 6
	}
	if c.Settings != nil && c.Settings.MySQLRouter != nil {
		return 5
	}
	if c.Variables != nil {
		return 4
	}
	keyed := c.Keys != nil || c.Membership != nil && c.Membership.Key != "" || c.Settings != nil && c.Settings.PeerSecurity != nil
	if keyed {
		return 3
	}
	sourced := c.Node != nil && (c.Node.Source != nil || c.Node.SourceApplied != nil)
	if c.Settings != nil || sourced || c.Membership != nil && c.Membership.Source != "" {
		return 2
	}
	return 1
}
