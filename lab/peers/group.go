package peers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// groupPort is where the members of a group talk to each other.
const groupPort = 33061

// group is Group Replication.
type group struct {
	servers
	multi bool
	locks map[string]*sql.Conn // by node: the session whose lock holds its appliers
}

func newGroup(d *Deployment) *group {
	g := &group{multi: d.opts.System == MGRMulti, locks: map[string]*sql.Conn{}}
	g.servers = newServers(d, nodeNames(), g.own(d.opts))
	g.relaxReplicas(d.opts)
	for _, s := range g.all {
		s.vars["loose_group_replication_local_address"] = address(s.addr.String(), groupPort)
	}
	return g
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// own are the settings of a member. They have the prefix loose_, because the server reads them already at its
// initialisation, without the plugin.
func (g *group) own(o Options) []Setting {
	consistency, why := "EVENTUAL", "the articles' RPO≠0: a commit waits for a majority to have received it, in memory"
	if o.System == MGRAfter {
		consistency, why = "AFTER", "the articles' RPO=0: a commit waits until every member has prepared it"
	}
	compression, whyCompression := "0", "off: the option --compress, the same for all"
	if o.Compress {
		compression, whyCompression = "1000000", "the default; the transactions' payloads are compressed already"
	}
	limit, whyLimit := "2147483647", "the greatest: the default, 150 MB, refuses large transactions"
	if o.SizeLimit != "" {
		limit, whyLimit = "150000000", "the default: the option --size-limit"
	}
	expel, whyExpel := "5", "the default: seconds after the 5 s until a silent member is suspected"
	if o.ExpelTimeout != nil {
		expel, whyExpel = strconv.Itoa(*o.ExpelTimeout), "the option --expel-timeout; the default is 5"
	}
	var seeds []string
	for _, name := range nodeNames() {
		seeds = append(seeds, address(o.Network.Addr(name).String(), groupPort))
	}
	const gr = "loose_group_replication_"
	all := []Setting{
		{"plugin_load_add", "group_replication.so", "needed"},
		{"disabled_storage_engines", "MyISAM,BLACKHOLE,FEDERATED,ARCHIVE,MEMORY", "the manual's advice for members"},
		{"super_read_only", "ON", "every server begins so; the group opens the primary"},
		{"replication_optimize_for_static_plugin_config", "ON", "the manual's advice where plugins are not changed: fewer locks"},
		{gr + "group_name", newUUID(), "needed"},
		{gr + "group_seeds", strings.Join(seeds, ","), "needed"},
		{gr + "bootstrap_group", "OFF", "by hand, once"},
		{gr + "start_on_boot", "OFF", "OFF until the group is made, ON from then on: members rejoin by themselves"},
		{gr + "communication_stack", "XCOM", "the default"},
		{gr + "ssl_mode", "DISABLED", "the default; no system of the lab encrypts"},
		{gr + "recovery_get_public_key", "ON", "needed without TLS"},
		{gr + "consistency", consistency, why},
		{gr + "flow_control_mode", "DISABLED", "the articles' advice: a slow member does not stop the writers; its lag is in the same row"},
		{gr + "paxos_single_leader", onOff(o.PaxosSingleLeader), "the option --paxos-single-leader: fewer round trips where one member writes"},
		{gr + "single_primary_mode", onOff(!g.multi), "one primary, or writers everywhere"},
		{gr + "enforce_update_everywhere_checks", onOff(g.multi), "the manual's advice for writers everywhere"},
		{gr + "compression_threshold", compression, whyCompression},
		{gr + "transaction_size_limit", limit, whyLimit},
		{gr + "message_cache_size", "1073741824", "the default, stated: 1 GiB of messages for members that are behind"},
		{gr + "member_expel_timeout", expel, whyExpel},
		remark("writers: %s", o.Writers),
	}
	if o.ElectUpdated {
		all = append(all, Setting{gr + "elect_prefers_most_updated.enabled", "ON",
			"the option --elect-updated: the component of 9.7 that makes the member with the most transactions the new primary"})
	}
	return append(all, relaxedRemark(o)...)
}

// installElection loads the component on a server that is in no group yet, without a trace in its binary log.
func (s *server) installElection(ctx context.Context) error {
	return s.exec(ctx, "SET sql_log_bin = 0", "SET GLOBAL super_read_only = OFF",
		"INSTALL COMPONENT 'file://component_group_replication_elect_prefers_most_updated'",
		"SET GLOBAL super_read_only = ON", "SET sql_log_bin = 1")
}

// newUUID returns a random UUID (version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (Go 1.24)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (g *group) up(ctx context.Context) error {
	if err := g.begin(ctx); err != nil {
		return err
	}
	for i, s := range g.all {
		if err := s.createReplicator(ctx, g.d.password); err != nil {
			return err
		}
		if g.d.opts.ElectUpdated {
			if err := s.installElection(ctx); err != nil {
				return err
			}
		}
		err := s.exec(ctx, fmt.Sprintf(`CHANGE REPLICATION SOURCE TO SOURCE_USER='%s', SOURCE_PASSWORD='%s'
			FOR CHANNEL 'group_replication_recovery'`, replicationUser, g.d.password))
		if err != nil {
			return err
		}
		if err := g.join(ctx, s, i == 0); err != nil {
			return err
		}
	}
	if err := g.judgeLeaders(ctx); err != nil {
		return err
	}
	for _, s := range g.all {
		s.vars["loose_group_replication_start_on_boot"] = "ON"
		if err := s.writeConfig(); err != nil {
			return err
		}
	}
	return nil
}

// judgeLeaders returns an error unless the group's consensus does what the option says: one preferred
// leader, or every member a leader.
func (g *group) judgeLeaders(ctx context.Context) error {
	want := len(g.all)
	if g.d.opts.PaxosSingleLeader {
		want = 1
	}
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	return poll(ctx, "the consensus has its leaders", func(ctx context.Context) error {
		for _, s := range g.all {
			text, err := s.text(ctx, "SELECT WRITE_CONSENSUS_LEADERS_PREFERRED FROM performance_schema.replication_group_communication_information")
			if err != nil {
				return err
			}
			if n := countListed(text); n != want {
				return fmt.Errorf("node %s has %d preferred leaders of the consensus (%q), want %d", s.name, n, text, want)
			}
		}
		return nil
	})
}

// countListed counts the items of a list with commas.
func countListed(text string) int {
	return len(strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }))
}

// join starts replication on a member, and makes the group first if told to.
func (g *group) join(ctx context.Context, s *server, bootstrap bool) error {
	if bootstrap {
		return s.exec(ctx, "SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION",
			"SET GLOBAL group_replication_bootstrap_group = OFF")
	}
	return s.exec(ctx, "START GROUP_REPLICATION")
}

// member is a line of replication_group_members.
type member struct {
	node        string
	state, role string
}

// members returns the members of the group as a server sees them.
func (g *group) members(ctx context.Context, s *server) ([]member, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all, err := rows.All(ctx, s.root, func(m *member) []any { return []any{&m.node, &m.state, &m.role} }, "SELECT MEMBER_HOST, MEMBER_STATE, MEMBER_ROLE FROM performance_schema.replication_group_members")
	if err != nil {
		return nil, fmt.Errorf("ask node %s for its group: %w", s.name, err)
	}
	names := map[string]string{}
	for _, other := range g.all {
		names[other.addr.String()] = other.name
	}
	for i, m := range all {
		all[i].node = names[m.node] // until here node was the member's host
	}
	return all, nil
}

// online says that a majority of the members that a server sees, and the server itself, is
// in the group: so its view is not an old one.
func online(all []member, self string) bool {
	count, in := 0, false
	for _, m := range all {
		if m.state == "ONLINE" || m.state == "RECOVERING" {
			count++
			in = in || m.node == self && m.state == "ONLINE"
		}
	}
	return in && 2*count > len(all)
}

func (g *group) primary(ctx context.Context) (string, error) {
	if !g.multi {
		return g.find(ctx)
	}
	if g.d.opts.Writers == WritersAll {
		return "", nil
	}
	all, err := g.writers(ctx)
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0].node, nil
}

// find returns a member that takes writes, "" if there is none.
func (g *group) find(ctx context.Context) (string, error) {
	for _, s := range g.living() {
		all, err := g.members(ctx, s)
		if err != nil || !online(all, s.name) {
			continue // it is frozen, or not in the group
		}
		for _, m := range all {
			if m.role != "PRIMARY" || m.state != "ONLINE" {
				continue
			}
			if p, err := g.named(m.node); err == nil && p.running() != nil && p.writable(ctx) == nil {
				return m.node, nil
			}
		}
	}
	return "", ctx.Err()
}

func (g *group) writers(ctx context.Context) ([]place, error) {
	if !g.multi {
		node, err := g.find(ctx)
		if err != nil || node == "" {
			return nil, err
		}
		return []place{{node, serverPort}}, nil
	}
	var all []place
	for _, s := range g.living() {
		if m, err := g.members(ctx, s); err == nil && online(m, s.name) && s.writable(ctx) == nil {
			all = append(all, place{s.name, serverPort})
		}
	}
	if g.d.opts.Writers == WritersOne && len(all) > 1 {
		all = all[:1]
	}
	return all, ctx.Err()
}

func (g *group) ready(ctx context.Context) error {
	for _, s := range g.living() {
		all, err := g.members(ctx, s)
		if err != nil {
			return err
		}
		in := 0
		for _, m := range all {
			if m.state == "ONLINE" {
				in++
			}
		}
		if in != len(g.living()) {
			return fmt.Errorf("node %s sees %d of %d members online", s.name, in, len(g.living()))
		}
	}
	node, err := g.find(ctx)
	if err == nil && node == "" {
		err = errors.New("no member takes writes")
	}
	return err
}

func (g *group) stopApply(ctx context.Context, node string) error {
	s, err := g.named(node)
	if err != nil {
		return err
	}
	g.locks[node], err = s.lockApply(ctx)
	return err
}

func (g *group) startApply(ctx context.Context, node string) error {
	conn := g.locks[node]
	if conn == nil {
		return fmt.Errorf("peers: the appliers of node %s are not held", node)
	}
	delete(g.locks, node)
	return unlockApply(ctx, conn)
}

// recover makes the group again from the member that has most.
func (g *group) recover(ctx context.Context) ([]string, error) {
	if node, err := g.find(ctx); err != nil || node != "" {
		return nil, err // the group is there
	}
	var steps []string
	var best *server
	var count uint64
	for _, s := range g.living() {
		if err := s.exec(ctx, "STOP GROUP_REPLICATION"); err != nil {
			return steps, err
		}
		steps = append(steps, "STOP GROUP_REPLICATION on "+s.name)
		has, err := s.gtids(ctx, `SELECT CONCAT_WS(',', NULLIF(@@GLOBAL.gtid_executed, ''), (SELECT NULLIF(RECEIVED_TRANSACTION_SET, '')
			FROM performance_schema.replication_connection_status WHERE CHANNEL_NAME = 'group_replication_applier'))`)
		if err != nil {
			return steps, err
		}
		steps = append(steps, "read what "+s.name+" has: executed and received")
		if best == nil || has.Count() > count {
			best, count = s, has.Count()
		}
	}
	if best == nil {
		return nil, errors.New("recover: no server runs")
	}
	if err := g.join(ctx, best, true); err != nil {
		return steps, err
	}
	steps = append(steps, "choose "+best.name+" and bootstrap the group there")
	for _, s := range g.living() {
		if s == best {
			continue
		}
		if err := g.join(ctx, s, false); err != nil {
			return steps, err
		}
		steps = append(steps, "START GROUP_REPLICATION on "+s.name)
	}
	return steps, nil
}

func (g *group) close() {
	for _, conn := range g.locks {
		_ = conn.Close() // the server goes anyway
	}
	g.servers.close()
}
