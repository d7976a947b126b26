package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/quorate/quorate/internal/config/units"
)

// StateBytesMax bounds the entry of a change, which has the whole state: enough for some dozens of members with long
// names, and about 2000 removed ones.
const StateBytesMax = 64 << 10

// Bounds of what an operator may write into the state.
const (
	siteBytesMax   = 64
	reasonBytesMax = 500
	byBytesMax     = 200
	// Shorter maintenance would be over before anybody is at work. Longer maintenance would be forgotten.
	maintenanceMin = time.Minute
	maintenanceMax = 30 * 24 * time.Hour
)

// Durability says what a commit waits for.
type Durability string

// The durability policies.
const (
	// DurabilityMajority: a majority of the voters, as Raft does.
	DurabilityMajority Durability = "majority"
	// DurabilityAll: every voter.
	DurabilityAll Durability = "all"
	// DurabilitySiteMajority: a majority of the voters, which must include voters of two sites.
	DurabilitySiteMajority Durability = "site-majority"
)

// Maintenance exists while an operator has asked for no automatic failover.
type Maintenance struct {
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by"`
	Since  time.Time `json:"since"`
	// Until is when it ends by itself; zero = it ends when it is switched off.
	Until time.Time `json:"until,omitzero"`
	// Primary is the name of the only node that may open for writes; "" = none may, because there was no
	// primary when maintenance began.
	Primary string `json:"primary,omitempty"`
}

// String says since when, by whom, and what it means.
func (m Maintenance) String() string {
	text := fmt.Sprintf("since %s, by %s", units.Time(m.Since), m.By)
	if !m.Until.IsZero() {
		text += ", until " + units.Time(m.Until)
	}
	text += ": no failover, no node may open"
	if m.Primary != "" {
		text += " but " + m.Primary
	}
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return text
}

// State is what the cluster has agreed on beside transactions. Every node has the same State at the same index
// of the log.
type State struct {
	// Version counts the changes. 0: there was no change, so the state follows from the configuration.
	Version uint64   `json:"version"`
	Members []Member `json:"members"`
	// Removed are the ids of former members. No id is used again.
	Removed []NodeID `json:"removed,omitempty"`
	// RemovedKeys are the keys of the nodes that were removed last: a node that shows one of them is told that it was removed.
	RemovedKeys map[NodeID]Key `json:"removed_keys,omitempty"`
	// RemovedNextKeys are the next keys of nodes that were removed while their key was being changed.
	RemovedNextKeys map[NodeID]Key `json:"removed_next_keys,omitempty"`
	// PeerSecurity says how the connections between agents are protected.
	PeerSecurity PeerSecurity `json:"peer_security,omitempty"`
	// Maintenance is nil while maintenance is off.
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	Durability  Durability   `json:"durability"`
	// Reseed, Errant and RetainBytesMax say what the cluster does by itself with a node whose data are of no
	// use; "" and 0 = auto, keep, no bound.
	Reseed         Reseed       `json:"reseed,omitempty"`
	Errant         ErrantPolicy `json:"errant,omitempty"`
	RetainBytesMax int64        `json:"retain_bytes_max,omitempty"`
	// Variables are server variables that all nodes have, by VariableName.
	Variables map[string]string `json:"variables,omitempty"`
	// MySQLRouter: the primary keeps the metadata by which MySQL Router finds the members.
	MySQLRouter bool `json:"mysql_router,omitempty"`
	// EventsOff: the event scheduler runs on no node. Otherwise it runs on the primary.
	EventsOff bool `json:"events_off,omitempty"`
	// Follow is the server outside of the cluster that the primary follows; nil = none.
	Follow *Follow `json:"follow,omitempty"`
	// Closing is the cutover that has closed that server, or may have; nil = none.
	Closing *Closing `json:"closing,omitempty"`
	// CutOver is the server that was followed last, if the cluster has replaced it; nil = it has not.
	CutOver *CutOver `json:"cut_over,omitempty"`
	// Site is the other site, from which this cluster has taken over; nil = none is known. SiteBallot is the
	// newest attempt of either site that is known here.
	Site       *OtherSite `json:"site,omitempty"`
	SiteBallot Ballot     `json:"site_ballot,omitzero"`
	// Recovered says that the cluster was made of one node of a cluster whose majority was gone; nil = it was
	// not.
	Recovered *Recovery `json:"recovered,omitempty"`
}

// NewState is the state before any change, by the configuration. If the configuration has the keys of all
// members, all connections need keys.
func NewState(members []Member) State {
	s := State{Members: slices.Clone(members), Durability: DurabilityMajority}
	if len(members) > 0 && !slices.ContainsFunc(members, func(m Member) bool { return m.Key == "" }) {
		s.PeerSecurity = PeersRequire
	}
	return s
}

// StatePoint is the state at an index of the log.
type StatePoint struct {
	State State `json:"state"`
	// Index is the index of the entry with the newest change, or with the end of one; 0 = there was none.
	Index uint64 `json:"index"`
	// Outgoing are the old voters while a change of the voters is not complete: until then a majority of them
	// has to agree, too.
	Outgoing []NodeID `json:"outgoing,omitempty"`
	// Through: no entry behind Index, up to this index, changes the state.
	Through uint64 `json:"through"`
}

// StateChange is the content of an entry with a change: the change, and the state after it. Nodes use the
// state; the change is for people.
type StateChange struct {
	Change Change `json:"change"`
	State  State  `json:"state"`
}

// Change is one change of the state. Exactly one of the pointers is set.
type Change struct {
	// ID is random: it distinguishes the change from another one that asks for the same.
	ID string `json:"id"`
	// By is who asked: an OS account and a host.
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Judged is the version of the state for which the change was judged: the leader refuses the change if
	// another version is committed. 0 = any. It is not stored.
	Judged uint64 `json:"-"`

	Node        *NodeChange        `json:"node,omitempty"`
	Maintenance *MaintenanceChange `json:"maintenance,omitempty"`
	Durability  *Durability        `json:"durability,omitempty"`
	Membership  *MembershipChange  `json:"membership,omitempty"`
	Settings    *SettingsChange    `json:"settings,omitempty"`
	Keys        *KeysChange        `json:"keys,omitempty"`
	Variables   *VariablesChange   `json:"variables,omitempty"`
	Follow      *FollowChange      `json:"follow,omitempty"`
	Site        *SiteChange        `json:"site,omitempty"`
}

// NodeChange changes one member: the settings that are not nil.
type NodeChange struct {
	Name       string         `json:"name"`
	Weight     *int           `json:"weight,omitempty"`
	Site       *string        `json:"site,omitempty"`
	RequireAck *bool          `json:"require_ack,omitempty"`
	DropAfter  *time.Duration `json:"drop_after_ns,omitempty"`
	// Source is the name of the node that feeds a learner; "" = the leader.
	Source        *string `json:"source,omitempty"`
	SourceApplied *bool   `json:"source_applied,omitempty"`
	// Peer is the host:port at which the other nodes reach it.
	Peer *string `json:"peer,omitempty"`
}

// MaintenanceChange switches maintenance on or off.
type MaintenanceChange struct {
	On bool `json:"on"`
	// Reason is the reason; "" = as before.
	Reason string `json:"reason,omitempty"`
	// For bounds the time; 0 = until it is switched off, or as before.
	For time.Duration `json:"for_ns,omitempty"`
	// Primary is the node that may open for writes; "" = as before.
	Primary string `json:"primary,omitempty"`
}

// Designate sets the node that may open while maintenance is on, if no node is named: the leader, if it can
// open. The primary of a term is its leader.
func (c *MaintenanceChange) Designate(s State, leader NodeID) {
	if m, ok := s.MemberByID(leader); ok && c.On && c.Primary == "" && s.Maintenance == nil && m.Kind == KindFull && m.Weight > 0 {
		c.Primary = m.Name
	}
}

// Appoint returns the change that lets another node open while maintenance is on.
func (m Maintenance) Appoint(name string) *MaintenanceChange {
	return &MaintenanceChange{On: true, Reason: m.Reason, Primary: name}
}

// MayOpen returns an error if maintenance forbids a node to open for writes.
func (s State) MayOpen(name string) error {
	m := s.Maintenance
	if m == nil || m.Primary == name {
		return nil
	}
	return fmt.Errorf("maintenance is on since %s, by %s: only %q may open", units.Time(m.Since), m.By, m.Primary)
}

// MaintenanceRequest asks for such a change.
type MaintenanceRequest struct {
	MaintenanceChange
	Ask
}

// ChangeResult is the result of a change that somebody asked for.
type ChangeResult struct {
	// Changed is false if the state was so already.
	Changed bool   `json:"changed"`
	What    string `json:"what"`
	// Done says in one sentence what the change has done; "" = no change was made.
	Done string `json:"done,omitempty"`
	// DryRun: it was only checked whether the change is possible.
	DryRun bool `json:"dry_run,omitempty"`
	// Version is the present version of the state.
	Version uint64 `json:"version"`
	// Impact is what the change means. For a change that was made, it is set only if there was a reason to
	// warn.
	Impact
}

// Ask says how a change is asked for.
type Ask struct {
	// DryRun: only say what the change would do.
	DryRun bool `json:"dry_run,omitempty"`
	// Force: make the change even if writes stop because of it.
	Force bool `json:"force,omitempty"`
}

// NodeRequest, SettingsRequest and KeysRequest ask for changes.
type (
	NodeRequest struct {
		NodeChange
		Ask
	}
	SettingsRequest struct {
		SettingsChange
		Ask
	}
	KeysRequest struct {
		KeysChange
		Ask
	}
)

// Impact says what a change means, as far as the present statuses of the nodes show.
type Impact struct {
	// Notes are sentences that say what changes.
	Notes []string `json:"notes,omitempty"`
	// Stops are sentences that say why writes would stop at once.
	Stops []string `json:"stops,omitempty"`
	// TooFew says why the change would leave too few voters for a while; "" = it would not. Such a change must be forced.
	TooFew string `json:"-"`
}

// ErrUnchanged refuses a change that would change nothing.
var ErrUnchanged = errors.New("it is so already")

// UnknownNodeError refuses a name that no member has.
type UnknownNodeError struct {
	Name  string
	Known []string
}

// Error names the nodes that exist.
func (e *UnknownNodeError) Error() string {
	return fmt.Sprintf("there is no node %q: the nodes are %s", e.Name, strings.Join(e.Known, ", "))
}

// Member returns the member with a name; an *UnknownNodeError if there is none.
func (s State) Member(name string) (Member, error) {
	known := make([]string, 0, len(s.Members))
	for _, m := range s.Members {
		if m.Name == name {
			return m, nil
		}
		known = append(known, m.Name)
	}
	return Member{}, &UnknownNodeError{Name: name, Known: known}
}

// MemberByID returns the member with an id; false if there is none.
func (s State) MemberByID(id NodeID) (m Member, ok bool) {
	i := slices.IndexFunc(s.Members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return m, false
	}
	return s.Members[i], true
}

// Bytes is how much of StateBytesMax the state takes.
func (s State) Bytes() int {
	b, _ := json.Marshal(s) // without an error: it has only texts and numbers
	return len(b)
}

// Clone returns a copy that shares nothing with s.
func (s State) Clone() State {
	s.Members, s.Removed = slices.Clone(s.Members), slices.Clone(s.Removed)
	s.RemovedKeys, s.RemovedNextKeys, s.Variables = maps.Clone(s.RemovedKeys), maps.Clone(s.RemovedNextKeys), maps.Clone(s.Variables)
	if s.Maintenance != nil {
		m := *s.Maintenance
		s.Maintenance = &m
	}
	if s.Follow != nil {
		f := *s.Follow
		s.Follow = &f
	}
	if s.Closing != nil {
		c := *s.Closing
		s.Closing = &c
	}
	if s.CutOver != nil {
		o := *s.CutOver
		s.CutOver = &o
	}
	if s.Site != nil {
		o := *s.Site
		s.Site = &o
	}
	if s.Recovered != nil {
		r := *s.Recovered
		r.Without = slices.Clone(r.Without)
		s.Recovered = &r
	}
	return s
}

// With returns the state after the change c, with the next version. It does not change s. The error says in one
// line why the change is not possible; it is ErrUnchanged if c would change nothing.
func (s State) With(c Change) (State, error) {
	if err := c.check(); err != nil {
		return State{}, err
	}
	next := s.Clone()
	next.Version++
	changed, err := false, error(nil)
	switch {
	case c.Node != nil:
		changed, err = next.setNode(*c.Node)
	case c.Maintenance != nil:
		changed, err = next.setMaintenance(c)
	case c.Durability != nil:
		changed = next.Durability != *c.Durability
		next.Durability = *c.Durability
	case c.Membership != nil:
		changed, err = true, next.setMembership(*c.Membership)
	case c.Settings != nil:
		changed, err = next.setSettings(*c.Settings)
	case c.Keys != nil:
		changed, err = next.setKeys(*c.Keys)
	case c.Variables != nil:
		changed, err = next.setVariables(*c.Variables)
	case c.Follow != nil:
		changed, err = next.setFollow(c)
	case c.Site != nil:
		changed, err = next.setSite(c)
	}
	if err == nil {
		err = next.check(s.noFull())
	}
	if err == nil && !changed {
		err = fmt.Errorf("%w: %s", ErrUnchanged, c)
	}
	if err != nil {
		return State{}, err
	}
	return next, nil
}

// check refuses a change that says nothing, more than one thing, or too much.
func (c Change) check() error {
	said := 0
	for _, is := range []bool{c.Node != nil, c.Maintenance != nil, c.Durability != nil, c.Membership != nil, c.Settings != nil, c.Keys != nil, c.Variables != nil, c.Follow != nil, c.Site != nil} {
		if is {
			said++
		}
	}
	switch {
	case said != 1:
		return fmt.Errorf("a change must say exactly one thing; this change says %d", said)
	case c.ID == "":
		return errors.New("this change has no id")
	case len(c.By) > byBytesMax:
		return fmt.Errorf("the requester's name has %d bytes; the limit is %d", len(c.By), byBytesMax)
	case !printable(c.By):
		return fmt.Errorf("the requester's name is %q: control characters are not allowed", c.By)
	case c.Maintenance != nil:
		return c.Maintenance.check()
	}
	return nil
}

// check refuses values that are out of bounds.
func (c MaintenanceChange) check() error {
	switch {
	case len(c.Reason) > reasonBytesMax:
		return fmt.Errorf("the reason has %d bytes, at most %d are kept", len(c.Reason), reasonBytesMax)
	case c.For != 0:
		return CheckMaintenanceFor(c.For)
	}
	return nil
}

// CheckMaintenanceFor refuses a duration that is too short or too long for maintenance.
func CheckMaintenanceFor(d time.Duration) error {
	if d < maintenanceMin || d > maintenanceMax {
		return fmt.Errorf("the time of maintenance must be %s to %s, not %s", units.Duration(maintenanceMin), units.Duration(maintenanceMax), units.Duration(d))
	}
	return nil
}

// printable tells whether a text is safe to show on a terminal: nothing in it moves the cursor, ends the line,
// or changes the order in which it is read.
func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
	})
}

func (s *State) setNode(c NodeChange) (changed bool, err error) {
	m, err := s.Member(c.Name)
	if err != nil {
		return false, err
	}
	before := m
	switch {
	case c == NodeChange{Name: c.Name}:
		return false, fmt.Errorf("the change names no setting of node %s", c.Name)
	case c.Weight != nil && (*c.Weight < 0 || *c.Weight > WeightMax):
		return false, fmt.Errorf("weight must be 0 (never the primary) to %d, not %d", WeightMax, *c.Weight)
	case c.Weight != nil && m.Kind != KindFull:
		return false, fmt.Errorf("node %s is a %s: only full nodes have a weight", m.Name, m.Kind)
	case c.Site != nil && !siteOK(*c.Site):
		return false, fmt.Errorf("site must be up to %d letters, digits, '.', '-' and '_', not %q", siteBytesMax, *c.Site)
	case c.DropAfter != nil && *c.DropAfter < 0:
		return false, fmt.Errorf("drop-after must be above 0, not %v", *c.DropAfter)
	}
	if err := errors.Join(c.checkAck(m), s.checkSource(c, m), s.checkAddress(c, m)); err != nil {
		return false, err
	}
	set(&m.Weight, c.Weight)
	set(&m.Site, c.Site)
	set(&m.RequireAck, c.RequireAck)
	set(&m.DropAfter, c.DropAfter)
	if !m.RequireAck {
		m.DropAfter = 0 // if it is required again, ACKs wait without a limit
	}
	set(&m.Source, c.Source)
	set(&m.SourceApplied, c.SourceApplied)
	set(&m.Peer, c.Peer)
	m.SourceApplied = m.SourceApplied && m.Source != ""
	s.Members[slices.Index(s.Members, before)] = m
	return m != before, nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func siteOK(site string) bool {
	if len(site) > siteBytesMax {
		return false
	}
	for _, c := range site {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c)) {
			return false
		}
	}
	return true
}

func (s *State) setMaintenance(c Change) (changed bool, err error) {
	if !c.Maintenance.On {
		changed = s.Maintenance != nil
		s.Maintenance = nil
		return changed, nil
	}
	m := Maintenance{Reason: c.Maintenance.Reason, By: c.By, Since: c.At, Primary: c.Maintenance.Primary}
	before := s.Maintenance
	if before != nil { // reason, time or node are changed; what is not given stays
		m.Reason = cmp.Or(m.Reason, before.Reason)
		m.By, m.Since, m.Until = before.By, before.Since, before.Until
		m.Primary = cmp.Or(m.Primary, before.Primary)
		if m.Reason != before.Reason {
			m.By = c.By
		}
	}
	// A reason that an older quorate has accepted may stay: a switchover passes it on.
	if (before == nil || m.Reason != before.Reason) && !printable(m.Reason) {
		return false, fmt.Errorf("the reason is %q: control characters are not kept", m.Reason)
	}
	if c.Maintenance.For > 0 {
		m.Until = c.At.Add(c.Maintenance.For)
	}
	if before != nil && m == *before {
		return false, nil
	}
	s.Maintenance = &m
	return true, nil
}

// ErrMaintenance is returned for a change that only maintenance prevents.
var ErrMaintenance = errors.New("maintenance is on")

// check refuses a state in which nobody could lead, unless nobody could before, and a state whose durability
// cannot be reached.
func (s State) check(nobodyLed bool) error {
	sites := map[string]bool{}
	for _, m := range s.Members {
		if m.Votes() {
			sites[m.Site] = true
		}
	}
	switch {
	case s.noFull() && !nobodyLed:
		return errors.New("no full node with a weight above 0 would be left: nobody could lead")
	case s.heldByNobody():
		return fmt.Errorf("%w, and only node %s may open for writes, which this change would prevent; "+
			"switch maintenance off first, or name another node with switchover --to", ErrMaintenance, s.Maintenance.Primary)
	case s.Durability == DurabilityMajority || s.Durability == DurabilityAll:
		return nil
	case s.Durability != DurabilitySiteMajority:
		return fmt.Errorf("durability must be %s, %s or %s, not %q",
			DurabilityMajority, DurabilityAll, DurabilitySiteMajority, s.Durability)
	case sites[""]:
		return fmt.Errorf("durability %s: some voters have no site", DurabilitySiteMajority)
	case len(sites) < 2:
		return fmt.Errorf("durability %s: the voters are all in one site", DurabilitySiteMajority)
	}
	return nil
}

// String says in one line what the change is.
func (c Change) String() string {
	switch {
	case c.Node != nil:
		return c.Node.String()
	case c.Maintenance != nil:
		return c.Maintenance.String()
	case c.Durability != nil:
		return fmt.Sprintf("durability %s", *c.Durability)
	case c.Membership != nil:
		return c.Membership.String()
	case c.Settings != nil:
		return c.Settings.String()
	case c.Keys != nil:
		return c.Keys.String()
	case c.Variables != nil:
		return c.Variables.String()
	case c.Follow != nil:
		return c.Follow.String()
	case c.Site != nil:
		return c.Site.String()
	}
	return "no change that this quorate knows"
}

// String says in one line what is switched on or off.
func (c MaintenanceChange) String() string {
	if !c.On {
		return "maintenance off"
	}
	text := "maintenance on"
	if c.For > 0 {
		text += " for " + units.Duration(c.For)
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

// String says in one line what is set.
func (c NodeChange) String() string { return fmt.Sprintf("node %s: %s", c.Name, c.settings()) }

func (c NodeChange) settings() string {
	var said []string
	if c.Weight != nil {
		said = append(said, fmt.Sprintf("weight %d", *c.Weight))
	}
	if c.Site != nil {
		said = append(said, fmt.Sprintf("site %q", *c.Site))
	}
	if c.RequireAck != nil {
		said = append(said, fmt.Sprintf("require-ack %t", *c.RequireAck))
	}
	switch {
	case c.DropAfter != nil && *c.DropAfter == 0:
		said = append(said, "degrade wait")
	case c.DropAfter != nil:
		said = append(said, "degrade drop-after="+units.Duration(*c.DropAfter))
	}
	switch {
	case c.Source != nil && *c.Source == "":
		said = append(said, "source none")
	case c.Source != nil:
		said = append(said, "source "+*c.Source)
	}
	if c.SourceApplied != nil {
		said = append(said, fmt.Sprintf("source-applied %t", *c.SourceApplied))
	}
	if c.Peer != nil {
		said = append(said, "peer "+*c.Peer)
	}
	return strings.Join(said, ", ")
}

// heldByNobody tells whether maintenance names a node that cannot open.
func (s State) heldByNobody() bool {
	if s.Maintenance == nil || s.Maintenance.Primary == "" {
		return false
	}
	m, err := s.Member(s.Maintenance.Primary)
	return err != nil || m.Kind != KindFull || m.Weight == 0
}
