package config

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
)

// The bounds of the settings. A value outside of them is refused.
const (
	// nameBytesMax bounds cluster and node names: they travel in the peer
	// handshake and are part of file names.
	nameBytesMax = 64
	// membersMax bounds the initial members. Every commit waits for a majority
	// of them; beyond seven the slowest of four only adds latency.
	membersMax = 7
	// addedMax bounds the [[added]] members.
	addedMax = 9

	// A heartbeat below 10 ms costs more CPU than detection gains; one above
	// 10 s makes "failover in about a second" meaningless.
	heartbeatMin = 10 * time.Millisecond
	heartbeatMax = 10 * time.Second
	// A hook that is killed sooner could do nothing. With a longer timeout the next change would wait.
	hookTimeoutMin = 100 * time.Millisecond
	hookTimeoutMax = 10 * time.Minute
	// hookWordsMax and hookWordBytesMax bound a hook's command line.
	hookWordsMax     = 32
	hookWordBytesMax = 1024
	// ElectionTimeoutMax bounds how long a cluster may be without a primary
	// before anybody tries to become one.
	ElectionTimeoutMax = time.Minute

	// A segment is a valid binlog file, and mysqld makes none above 1 GiB; one
	// below 1 MiB would be all headers and renames.
	segmentSizeMin = 1 * MiB
	segmentSizeMax = 1 * GiB
	// retentionSizeMax is more than a file system for a log has.
	retentionSizeMax = 1 << 20 * GiB
	// retentionAgeMax is ten years: more is no bound, and 0 says that.
	retentionAgeMax = 10 * 365 * 24 * time.Hour
	// A transaction below 64 KiB is not worth a file of its own. With a bound above the maximum, transactions
	// below it would be entries, which each node holds in memory a few times.
	stageSizeBytesMin = 64 * KiB
	stageSizeBytesMax = 16 * MiB
	// The caches: below 1 MiB, one read of the feed empties them; above 4 GiB,
	// the page cache is the better place.
	cacheSizeMin = 1 * MiB
	cacheSizeMax = 4 * GiB

	promotionTimeoutMin = time.Second
	promotionTimeoutMax = time.Hour

	// A replica's lag is known to half a second: a bound below a second would be
	// crossed by the figures alone.
	maxApplyLagMin = time.Second
	maxApplyLagMax = 24 * time.Hour

	// The status names a prepared XA transaction after a minute: none may be rolled back
	// before an operator could have read that. More than a month is no real bound.
	xaPreparedMaxAgeMin = time.Minute
	xaPreparedMaxAgeMax = 30 * 24 * time.Hour

	// A held connection costs a socket and two goroutines (16 KiB); the hold
	// must end before common client time-outs make the client give up anyway.
	holdTimeoutMax = 10 * time.Minute
	// A replica's lag is known to about a second.
	readMaxLagMin = time.Second
	readMaxLagMax = 24 * time.Hour
	readGraceMax  = 24 * time.Hour
	holdMaxMax    = 100_000

	// socketPathBytesMax is what the kernel takes (sun_path in unix(7), less its
	// NUL).
	socketPathBytesMax = 107
)

// Validate checks all values. Its error joins one Problem for everything that
// is wrong; nil means that an agent can be built from the Config.
func (c Config) Validate() error {
	l := &problemList{source: c.source}
	c.validateNode(l)
	c.validateMembers(l)
	c.validateTiming(l)
	c.validateSizes(l)
	c.validateMySQL(l)
	c.validateReaders(l)
	c.validateSite(l)
	c.validateListeners(l)
	c.validateControl(l)
	c.validateHooks(l)
	c.validateBackup(l)
	return l.err()
}

// Warnings returns what is allowed but probably not wanted, one sentence each.
func (c Config) Warnings() (texts []string) {
	n, canLead := len(c.Members), 0
	for _, m := range c.Members {
		if m.Kind != cluster.KindLogger && m.Weight != 0 {
			canLead++
		}
	}
	if n > 0 && n%2 == 0 {
		texts = append(texts, fmt.Sprintf("%d members survive no more failures than %d would: an odd number is better", n, n-1))
	}
	if n > 1 && canLead == 1 {
		texts = append(texts, fmt.Sprintf("only one of %d members can become the primary; while it is down, the cluster has no primary", n))
	}
	return texts
}

func (c Config) validateNode(l *problemList) {
	checkName(l, "cluster", "cluster", c.Cluster)
	checkName(l, "node", "node", c.Node)
	c.validateDataDir(l)
	switch c.LogLevel {
	case slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError:
	default:
		l.add("log_level", "log_level %v is unknown: use debug, info, warn or error", c.LogLevel)
	}
}

func (c Config) validateDataDir(l *problemList) {
	if !filepath.IsAbs(c.DataDir) {
		l.add("data_dir", "data_dir %q is not an absolute path: write a path that starts with /", c.DataDir)
	}
}

// CheckName checks the name of a node.
func CheckName(name string) error {
	var l problemList
	checkName(&l, "node", "node", name)
	return l.err()
}

// checkName accepts what is safe in a file name, a metric label, a log line
// and a shell without quotes.
func checkName(l *problemList, key, what, name string) {
	switch {
	case name == "":
		l.add(key, "%s is missing: give it a name, such as %s = \"a\"", what, what[strings.LastIndexByte(what, '.')+1:])
	case len(name) > nameBytesMax:
		l.add(key, "%s %q is longer than %d bytes: shorten it", what, name, nameBytesMax)
	case !regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`).MatchString(name):
		l.add(key, "%s %q is not a name: use letters, digits, and . _ - between them", what, name)
	}
}

func (c Config) validateMembers(l *problemList) {
	if len(c.Members) == 0 {
		l.add("member", "there are no members: write one [[member]] with name and peer for each node")
		return
	}
	if len(c.Members) > membersMax {
		l.add("member", "%d members are too many: at most %d", len(c.Members), membersMax)
	}
	canLead := false
	c.validateKeys(l)
	byName, byPeer := make(map[string]string), make(map[string]string)
	for i, m := range c.Members {
		key := fmt.Sprintf("member[%d]", i)
		checkName(l, key+".name", "member.name", m.Name)
		checkUnique(l, byName, key+".name", m.Name, "member name", m.Name, "give each member a name of its own")
		host, _, ok := checkAddress(l, key+".peer", "member.peer", m.Peer)
		if ok {
			checkUnique(l, byPeer, key+".peer", m.Peer, "peer address", m.Name, "give each member an address of its own")
		}
		if ok && isAnyHost(host) {
			l.add(key+".peer", "member.peer %q names no host: other nodes dial it, write this member's own address", m.Peer)
		}
		checkKind(l, key+".kind", m.Kind)
		checkWeight(l, key+".weight", m)
		canLead = canLead || m.Kind != cluster.KindLogger && m.Weight != 0
	}
	if !canLead {
		l.add("member", "no member can become the primary: at least one has to be \"full\", with a weight above 0")
	}
	_, initial := byName[c.Node]
	c.validateAdded(l, byName, byPeer)
	if c.Joins() {
		c.validateJoin(l, initial, byPeer)
	} else if !initial && c.Node != "" {
		l.add("node", "node %q is not among the members (%s): use one of them, or add a [[member]] named %q",
			c.Node, strings.Join(c.names(), ", "), c.Node)
	}
}

// validateKeys requires that all initial members have keys, or none: a member without a key cannot connect to
// a member that requires keys.
func (c Config) validateKeys(l *problemList) {
	if p := c.PeerTLS; p != (PeerTLS{}) && (p.CAFile == "" || p.CertificateFile == "" || p.KeyFile == "") {
		l.add("peer_tls", "ca_file, certificate_file and key_file belong together: write all three, or none")
	}
	byKey, first := make(map[string]string), c.Members[0]
	for i, m := range c.Members {
		key := fmt.Sprintf("member[%d].key", i)
		if (m.Key == "") != (first.Key == "") {
			with, without := first, m
			if first.Key == "" {
				with, without = m, first
			}
			l.add(key, "member %q has a key, and member %q has none: write the keys of all, or of none (\"quorate key show\" prints a node's)", with.Name, without.Name)
			return
		}
		if m.Key.Issued() && m.Key != cluster.Key(fmt.Sprintf("ca:quorate://%s/%s", c.Cluster, m.Name)) {
			l.add(key, "member %q of cluster %q cannot have the key %s: an authority's certificate names both", m.Name, c.Cluster, m.Key)
		}
		if m.Key != "" {
			checkUnique(l, byKey, key, string(m.Key), "key", m.Name, "each node has a key of its own")
		}
	}
	for i, m := range c.Added {
		if m.Key == "" && first.Key != "" {
			l.add(fmt.Sprintf("added[%d].key", i), "member %q was added to a cluster whose members have keys: write its own, as \"quorate key show\" prints it there", m.Name)
		}
		if m.Key != "" {
			checkUnique(l, byKey, fmt.Sprintf("added[%d].key", i), string(m.Key), "key", m.Name, "each node has a key of its own")
		}
	}
}

// validateAdded checks the members that were added later. byName and byPeer have the initial members.
func (c Config) validateAdded(l *problemList, byName, byPeer map[string]string) {
	if len(c.Added) > addedMax {
		l.add("added", "%d added members are too many: at most %d", len(c.Added), addedMax)
	}
	byName, byPeer = maps.Clone(byName), maps.Clone(byPeer)
	for i, m := range c.Added {
		key := fmt.Sprintf("added[%d]", i)
		checkName(l, key+".name", "added.name", m.Name)
		checkUnique(l, byName, key+".name", m.Name, "member name", m.Name, "write an initial member under [[member]], and a member that was added later under [[added]]")
		host, _, ok := checkAddress(l, key+".peer", "added.peer", m.Peer)
		if ok {
			checkUnique(l, byPeer, key+".peer", m.Peer, "peer address", m.Name, "give each member an address of its own")
		}
		if ok && isAnyHost(host) {
			l.add(key+".peer", "added.peer %q names no host: this node dials it, write that member's own address", m.Peer)
		}
	}
}

// validateJoin checks the settings of a node that joins.
func (c Config) validateJoin(l *problemList, initial bool, byPeer map[string]string) {
	host, _, ok := checkAddress(l, "join.peer", "join.peer", c.Join.Peer)
	if ok && isAnyHost(host) {
		l.add("join.peer", "join.peer %q names no host: other nodes dial it, write this node's own address", c.Join.Peer)
	}
	if name, taken := byPeer[c.Join.Peer]; taken {
		l.add("join.peer", "join.peer %q is the address of member %q: write this node's own", c.Join.Peer, name)
	}
	if initial {
		l.add("join", "node %q is one of the initial members, it does not join: leave [join] out", c.Node)
	}
	switch c.Join.Kind {
	case cluster.KindFull, cluster.KindLogger, cluster.KindLearner:
	default:
		l.add("join.kind", "join.kind %q is unknown: write \"full\", \"logger\" or \"learner\"", c.Join.Kind)
	}
}

func (c Config) names() []string {
	names := make([]string, 0, len(c.Members))
	for _, m := range c.Members {
		names = append(names, m.Name)
	}
	return names
}

// checkUnique notes a second use of value; seen maps a value to the member
// that used it first.
func checkUnique(l *problemList, seen map[string]string, key, value, what, member, advice string) {
	if value == "" {
		return
	}
	if first, ok := seen[value]; ok {
		where := fmt.Sprintf("by member %q", first)
		if first == value {
			where = "above"
		}
		l.add(key, "duplicate %s %q, used %s already: %s", what, value, where, advice)
		return
	}
	seen[value] = member
}

func checkKind(l *problemList, key string, kind cluster.Kind) {
	switch kind {
	case cluster.KindFull, cluster.KindLogger:
	case cluster.KindLearner:
		l.add(key, "member.kind %q has no vote, and each initial member has one: write \"full\" or \"logger\"; a learner joins later, with [join] kind and \"quorate node add\"", kind)
	default:
		l.add(key, "member.kind %q is unknown: write \"full\" or \"logger\"", kind)
	}
}

func checkWeight(l *problemList, key string, m Member) {
	if m.Weight < 0 || m.Weight > cluster.WeightMax {
		l.add(key, "member.weight %d is out of range: between 0 (never the primary) and %d", m.Weight, cluster.WeightMax)
	} else if m.Kind == cluster.KindLogger && m.Weight != cluster.WeightDefault {
		l.add(key, "member.weight %d has no effect: member %q is a logger, which leads only until a full node can; leave it out", m.Weight, m.Name)
	}
}

func (c Config) validateTiming(l *problemList) {
	checkDuration(l, "raft.heartbeat", c.Raft.Heartbeat, heartbeatMin, heartbeatMax)
	checkDuration(l, "mysql.promotion_timeout", c.MySQL.PromotionTimeout, promotionTimeoutMin, promotionTimeoutMax)
	if c.MySQL.MaxApplyLag != 0 {
		checkDuration(l, "mysql.max_apply_lag", c.MySQL.MaxApplyLag, maxApplyLagMin, maxApplyLagMax)
	}
	if c.MySQL.XAPreparedMaxAge != 0 {
		checkDuration(l, "mysql.xa_prepared_max_age", c.MySQL.XAPreparedMaxAge, xaPreparedMaxAgeMin, xaPreparedMaxAgeMax)
	}
	checkDuration(l, "router.read_max_lag", c.Router.ReadMaxLag, readMaxLagMin, readMaxLagMax)
	checkDuration(l, "router.read_grace", c.Router.ReadGrace, 0, readGraceMax)
	checkDuration(l, "router.hold_timeout", c.Router.HoldTimeout, 0, holdTimeoutMax)
	if e := c.Raft.ElectionTimeout; e > ElectionTimeoutMax {
		l.add("raft.election_timeout", "raft.election_timeout %s is too long: at most %s", units.Duration(e), units.Duration(ElectionTimeoutMax))
	} else if e < cluster.ElectionHeartbeatsMin*c.Raft.Heartbeat {
		l.add("raft.election_timeout",
			"raft.election_timeout %s is less than %d times raft.heartbeat %s: raise it to at least %s, or lower the heartbeat",
			units.Duration(e), cluster.ElectionHeartbeatsMin, units.Duration(c.Raft.Heartbeat), units.Duration(cluster.ElectionHeartbeatsMin*c.Raft.Heartbeat))
	}
}

func checkDuration(l *problemList, key string, value, low, high time.Duration) {
	if value < low || value > high {
		l.add(key, "%s %s is out of range: between %s and %s", key, units.Duration(value), units.Duration(low), units.Duration(high))
	}
}

func (c Config) validateSizes(l *problemList) {
	checkBytes(l, "log.segment_size", c.Log.SegmentSize, segmentSizeMin, segmentSizeMax)
	c.validateLog(l)
	if n := c.Router.HoldMax; n < 0 || n > holdMaxMax {
		l.add("router.hold_max", "router.hold_max %d is out of range: between 0 and %d", n, holdMaxMax)
	}
	if ip, err := netip.ParseAddr(c.MySQL.Bind); len(c.Router.Allow) > 0 && err == nil && !ip.IsLoopback() {
		l.add("router.allow", "router.allow bounds only what comes through the router, and with mysql.bind %q clients reach mysqld beside it: take one of them out", c.MySQL.Bind)
	}
}

func (c Config) validateLog(l *problemList) {
	checkBytes(l, "log.stage_size_min", c.Log.StageSizeMin, stageSizeBytesMin, stageSizeBytesMax)
	checkBytes(l, "log.cache_size", c.Log.CacheSize, cacheSizeMin, cacheSizeMax)
	checkBytes(l, "log.prefetch_size", c.Log.PrefetchSize, cacheSizeMin, cacheSizeMax)
	checkDuration(l, "log.retention_age", c.Log.RetentionAge, 0, retentionAgeMax)
	if s := c.Log.RetentionSize; s > retentionSizeMax {
		l.add("log.retention_size", "log.retention_size %v is out of range: at most %v", s, retentionSizeMax)
	} else if s < c.Log.SegmentSize {
		l.add("log.retention_size", "log.retention_size %v is less than log.segment_size %v: the file in use alone is as large",
			s, c.Log.SegmentSize)
	}
}

func checkBytes(l *problemList, key string, value, low, high Bytes) {
	if value < low || value > high {
		l.add(key, "%s %v is out of range: between %v and %v", key, value, low, high)
	}
}

func (c Config) validateMySQL(l *problemList) {
	if d := c.MySQL.BaseDir; d != "" && !filepath.IsAbs(d) {
		l.add("mysql.base_dir", "mysql.base_dir %q is not an absolute path: write a path that starts with /, or leave it empty", d)
	}
	if p := c.MySQL.Port; p < 1 || p > 65535 {
		l.add("mysql.port", "mysql.port %d is not a port: write a number from 1 to 65535", p)
	}
	if ip, err := netip.ParseAddr(c.MySQL.Bind); err != nil || ip.IsUnspecified() || ip.IsMulticast() || ip.Is4In6() || ip.Zone() != "" {
		l.add("mysql.bind", "mysql.bind %q is not one address of this node: use 127.0.0.1, or the address at which clients may reach mysqld itself", c.MySQL.Bind)
	} else if ip.IsLoopback() && c.MySQL.BindUnfencedStaleReads {
		l.add("mysql.bind_unfenced_stale_reads", "mysql.bind_unfenced_stale_reads does nothing where mysql.bind is a loopback address: leave it out, or set mysql.bind to this node's address")
	}
	variable := regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)
	for _, name := range slices.Sorted(maps.Keys(c.MySQL.Variables)) {
		key, value := "mysql.variables."+name, c.MySQL.Variables[name]
		if !variable.MatchString(name) {
			l.add(key, "mysql.variables: %q is not the name of a server variable", name)
		}
		// A line break would smuggle further options past the guard.
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			l.add(key, "%s holds a control character: write the value on one line", key)
		}
	}
}

// validateHooks checks the program that the agent runs at changes.
func (c Config) validateHooks(l *problemList) {
	checkDuration(l, "hooks.timeout", c.Hooks.Timeout, hookTimeoutMin, hookTimeoutMax)
	command := c.Hooks.OnChange
	switch {
	case len(command) == 0:
		return
	case !filepath.IsAbs(command[0]):
		l.add("hooks.on_change", "hooks.on_change %q is not an absolute path: write the program's path, which starts with /", command[0])
	case len(command) > hookWordsMax:
		l.add("hooks.on_change", "hooks.on_change has %d arguments: at most %d", len(command)-1, hookWordsMax-1)
	}
	for _, word := range command {
		if len(word) > hookWordBytesMax || strings.ContainsRune(word, 0) {
			l.add("hooks.on_change", "hooks.on_change has an argument of more than %d bytes, or with a NUL in it", hookWordBytesMax)
		}
	}
}

// Bounds of [backup].
const (
	backupIntervalMin = time.Second
	backupIntervalMax = time.Hour
	backupIdleMin     = time.Minute
	backupIdleMax     = 7 * 24 * time.Hour
	keepFullMax       = 1000
)

// validateBackup checks where backups are kept.
func (c Config) validateBackup(l *problemList) {
	b := c.Backup
	if b.CommandIdle != 0 {
		checkDuration(l, "backup.command_idle", b.CommandIdle, backupIdleMin, backupIdleMax)
	}
	checkDuration(l, "backup.interval", b.Interval, backupIntervalMin, backupIntervalMax)
	if b.KeepFull < 1 || b.KeepFull > keepFullMax {
		l.add("backup.keep_full", "backup.keep_full %d is out of range: between 1 and %d", b.KeepFull, keepFullMax)
	}
	commands := b.PutCommand + b.GetCommand + b.ListCommand + b.DeleteCommand
	switch {
	case b.Directory != "" && !filepath.IsAbs(b.Directory):
		l.add("backup.directory", "backup.directory %q is not an absolute path: write a path that starts with /", b.Directory)
	case b.Directory != "" && commands != "":
		l.add("backup.directory", "backup.directory and the commands of [backup] both say where backups are: leave one of them out")
	case commands != "" && (b.PutCommand == "" || b.GetCommand == "" || b.ListCommand == ""):
		l.add("backup.put_command", "[backup] needs put_command, get_command and list_command, if it has any command")
	}
	for i, key := range b.Recipients { // no text has the key: it may be a private one, and texts are in logs
		switch {
		case strings.HasPrefix(strings.ToUpper(key), "AGE-SECRET-KEY-"):
			l.add("backup.recipients", "backup.recipients: key %d is a private key of age, which must be on no host of the cluster: write the public key, which begins with age1", i+1)
		case !strings.HasPrefix(key, "age1"):
			l.add("backup.recipients", "backup.recipients: key %d is no public key of age: age-keygen prints one, which begins with age1", i+1)
		}
	}
}

// validateControl checks the path of the control socket.
func (c Config) validateControl(l *problemList) {
	path := c.ControlSocket()
	switch {
	case c.Control.Socket != "" && !filepath.IsAbs(path):
		l.add("control.socket", "control.socket %q is not an absolute path: write a path that starts with /", path)
	case len(path) > socketPathBytesMax:
		l.add("control.socket", "the control socket's path %s has %d bytes, the kernel takes %d: set control.socket to a shorter one, such as /run/quorate/%s.sock",
			path, len(path), socketPathBytesMax, c.Node)
	}
}

func checkLoopback(l *problemList, key, host, why string) {
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		l.add(key, "%s %q is not a loopback address: use 127.0.0.1; %s", key, host, why)
	}
}

// listener is a place where this node will listen.
type listener struct {
	key, host string
	port      int
}

// validateListeners checks the addresses, and that no two of this node's
// listeners want the same port. Whether another program has it is found out by
// the agent, which binds all ports before it does anything else.
func (c Config) validateListeners(l *problemList) {
	var all []listener
	add := func(key, address string) {
		if host, port, ok := checkAddress(l, key, key, address); ok {
			all = append(all, listener{key, host, port})
		}
	}
	full := c.Self().Kind != cluster.KindLogger // a logger has neither feed nor mysqld
	if full {
		add("feed.listen", c.Feed.Listen)
	}
	for _, feed := range all {
		checkLoopback(l, feed.key, feed.host, "the feed serves this node's own mysqld, without TLS")
	}
	add("router.read_write", c.Router.ReadWrite)
	if c.Router.ReadOnly != "" {
		add("router.read_only", c.Router.ReadOnly)
	}
	add("api.listen", c.API.Listen)
	if c.Feed.ReadersListen != "" {
		add("feed.readers_listen", c.Feed.ReadersListen)
	}
	if full {
		all = append(all, listener{"mysql.port", c.MySQL.Bind, c.MySQL.Port})
		if ip, err := netip.ParseAddr(c.MySQL.Bind); err == nil && !ip.IsLoopback() && !ip.IsUnspecified() {
			all = append(all, listener{"mysql.port", "127.0.0.1", c.MySQL.Port}) // by it the agent connects to mysqld
		}
	}
	if i := slices.IndexFunc(c.Members, func(m Member) bool { return m.Name == c.Node }); i >= 0 {
		if host, port, err := splitAddress(c.Members[i].Peer); err == nil {
			all = append(all, listener{fmt.Sprintf("member[%d].peer", i), host, port})
		}
	} else if host, port, err := splitAddress(c.Join.Peer); err == nil && c.Joins() {
		all = append(all, listener{"join.peer", host, port})
	}
	for i, b := range all {
		for _, a := range all[:i] {
			if a.port == b.port && overlap(a.host, b.host) {
				l.add(b.key, "port %d is used twice on this node, by %s and by %s: change one of them",
					b.port, shown(a.key), shown(b.key))
			}
		}
	}
}

// shown returns a key as people write it: the member's own index says nothing.
func shown(key string) string {
	if strings.HasPrefix(key, "member[") {
		return "member.peer"
	}
	return key
}

func checkAddress(l *problemList, key, name, address string) (host string, port int, ok bool) {
	host, port, err := splitAddress(address)
	if err != nil {
		l.add(key, "%s %q is not an address: %v", name, address, err)
	}
	return host, port, err == nil
}

// splitAddress splits host:port. The host may be empty (any address).
func splitAddress(address string) (string, int, error) {
	if address == "" {
		return "", 0, fmt.Errorf("it is missing, write host:port")
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil || service == "" {
		return "", 0, fmt.Errorf("write host:port, such as \"10.0.0.1:7400\" or \"[fd00::1]:7400\"")
	}
	if !isHost(host) {
		return "", 0, fmt.Errorf("%q is neither an IP address nor a host name", host)
	}
	port, err := strconv.Atoi(service)
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("port %q is not a number from 1 to 65535", service)
	}
	return host, port, nil
}

// overlap reports whether two hosts can mean the same local address. A name
// that is not an address may resolve to anything.
func overlap(a, b string) bool {
	ipA, errA := netip.ParseAddr(a)
	ipB, errB := netip.ParseAddr(b)
	if isAnyHost(a) || isAnyHost(b) || errA != nil || errB != nil {
		return true
	}
	return ipA == ipB
}

// isHost tells whether a text can be a host: it is empty, an IP address, or a name whose last
// part is no number. It does not look whether the name resolves.
func isHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return true
	}
	name := regexp.MustCompile(`^([A-Za-z0-9_-]+\.)*[0-9]*[A-Za-z_-][A-Za-z0-9_-]*\.?$`)
	return name.MatchString(host)
}

func isAnyHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}
