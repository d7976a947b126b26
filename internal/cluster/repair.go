package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/config/units"
)

// What a cluster does by itself with a node that cannot go on with the data that it
// has: the same as an operator's "node rebuild", by a leader that sees the reason.

// Reseed says what becomes of a member that comes back without its data directory.
type Reseed string

// The reseed policies.
const (
	// ReseedAuto: it is rebuilt. As the zero value it is the default.
	ReseedAuto Reseed = "auto"
	// ReseedManual: it is refused until an operator has it rebuilt.
	ReseedManual Reseed = "manual"
)

// ErrantPolicy says what becomes of a node whose mysqld has transactions that the
// cluster never committed.
type ErrantPolicy string

// The policies for errant nodes.
const (
	// ErrantKeep: it is fenced, and kept as it is. As the zero value it is the default.
	ErrantKeep ErrantPolicy = "keep"
	// ErrantRebuild: it is rebuilt once all of them were saved.
	ErrantRebuild ErrantPolicy = "rebuild"
)

// RetainBytesMin is the least bound of the log for a node that is away: some
// segments, or the first pause would cost a node its data.
const RetainBytesMin = 64 << 20

// Bounds of what is done by itself.
const (
	// repairSilence is how long a member was not heard before it counts as gone:
	// a live member is never rebuilt because another agent has come under its name.
	repairSilence = 10 * time.Second
	// retainSilence is the same for a member for which the log has grown too long: a
	// rolling restart takes less. Likewise one that is there, and stopped. One whose
	// mysqld starts has longer: InnoDB's recovery takes minutes.
	retainSilence  = time.Minute
	retainStarting = 10 * time.Minute
	// A leader has a node rebuilt RepairsMax times by itself within repairsWithin, with
	// that pause in between. Who needs more has something that no rebuild mends.
	repairsWithin = 24 * time.Hour
	repairPause   = 10 * time.Minute
)

// RepairsMax is how often a leader has a node rebuilt by itself within a day.
const RepairsMax = 3

// SettingsChange changes what is not nil of what is the whole cluster's.
type SettingsChange struct {
	Durability *Durability   `json:"durability,omitempty"`
	Reseed     *Reseed       `json:"reseed,omitempty"`
	Errant     *ErrantPolicy `json:"errant,omitempty"`
	// RetainBytesMax: beyond it a member that is away is not waited for; 0 = no bound.
	RetainBytesMax *int64 `json:"retain_bytes_max,omitempty"`
	// PeerSecurity only rises, by a step at a time.
	PeerSecurity *PeerSecurity `json:"peer_security,omitempty"`
	MySQLRouter  *bool         `json:"mysql_router,omitempty"`
	EventsOff    *bool         `json:"events_off,omitempty"`
}

// Change returns the change that asks for it: one that older nodes tell people of as
// it is, where they know it.
func (c SettingsChange) Change() Change {
	if c.Durability != nil && c == (SettingsChange{Durability: c.Durability}) {
		return Change{Durability: c.Durability}
	}
	return Change{Settings: &c}
}

// String says in a line what is set.
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

// OnOff is what people say of a setting that is one of both.
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
	if s.Reseed == ReseedAuto { // so that a state without the setting is the same one
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

// StateFormat is what this quorate knows of a state. A node with less would forget
// the rest at its next change.
const StateFormat = 9

// Format is what a node has to know to keep this state whole.
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

// RepairSight is what a leader sees of one member.
type RepairSight struct {
	// Silence is for how long its agent was not heard over its data directory, or, if
	// it never was, for how long this node has led.
	Silence time.Duration
	// Still is for how long its agent is there and its mysqld does not follow the log.
	// Stopped says why, if that does not pass by itself.
	Still   time.Duration
	Stopped string
	// Empty: an agent has just asked under its name, with an empty data directory.
	Empty bool
	// Errant: its mysqld has what was never committed; Saved: all of that is in errant/.
	Errant, Saved bool
	// LogBytes is how long the leader's log is, Holds whether this member is why it is
	// not purged.
	LogBytes int64
	Holds    bool
	// Gone are the members that were silent for long (Silent).
	Gone []NodeID
	// Leaving: it has been told to begin anew, and has not done so far. Short: it lacks
	// entries that the leader's log has no more, and gets none from it ever again.
	Leaving, Short bool
	// Repairs are how long ago this leader had it rebuilt by itself, the newest last;
	// RepairsMax of them are enough.
	Repairs []time.Duration
}

// Silent tells whether a member was not heard for so long that others do not wait for it.
func (s RepairSight) Silent() bool { return s.Silence >= retainSilence }

// Away says why a member is not waited for where the log has grown too long because of
// it; "" = it is waited for.
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

// Repair says why a leader has a member rebuilt now, by itself; "" = it does not. held
// says what is in the way where there is a reason. Whether the cluster would keep its
// majority is looked at where the change is made.
func (s State) Repair(m Member, sight RepairSight) (why, held string) {
	switch {
	case sight.Leaving: // it is under way
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

// repairHeld says why a member is not rebuilt although there is a reason; "" = it is.
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
	// To go on without a node that OKs wait for, or to wait until it is there again, is
	// a person's choice.
	case m.RequireAck && m.DropAfter == 0:
		return "OKs wait for it, by its require-ack"
	case m.Votes() && s.Durability == DurabilityAll:
		return "OKs wait for it, by durability all"
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

// Format is what a node has to know for a change.
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
