package peers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// replicated is one source with asynchronous or semi-synchronous replicas, or with
// none.
type replicated struct {
	servers
	semi bool
	// source is the name of the source, after the script's last step.
	source string
	// pointed is the source of each replica.
	pointed map[string]string
}

func newReplicated(d *Deployment) *replicated {
	r := &replicated{semi: d.opts.System == SemiSync, source: "a", pointed: map[string]string{}}
	names := nodeNames()
	if d.opts.System == Standalone {
		names = names[:1]
	}
	r.servers = newServers(d, names, r.own(d.opts))
	r.relaxReplicas(d.opts)
	return r
}

func (r *replicated) own(o Options) []Setting {
	if o.System == Standalone {
		own := []Setting{{"super_read_only", "OFF", "there is nobody else"}}
		if o.NoSync {
			const control = "the option --no-sync: the control of power-loss, which has to lose what was acknowledged"
			own = append(own, Setting{"sync_binlog", "0", control}, Setting{"innodb_flush_log_at_trx_commit", "2", control},
				Setting{"innodb_flush_log_at_timeout", "60", control})
		}
		return own
	}
	recovery := Setting{"relay_log_recovery", "ON", "the manual's advice for a replica that survives crashes: the relay log is fetched again"}
	if o.RelayLogRecovery == "off" {
		recovery = Setting{"relay_log_recovery", "OFF", "the option --relay-log-recovery: what was received and not applied is kept, should the source be gone"}
	}
	relay := Setting{"sync_relay_log", "10000", "the default, stated: a replica acknowledges what it has written to its relay log and not fsynced"}
	if o.SyncRelayLog {
		relay = Setting{"sync_relay_log", "1", "the option --sync-relay-log: fsynced before it is acknowledged"}
	}
	all := append([]Setting{{"super_read_only", "ON", "every server begins so; the script opens the source"}, recovery, relay}, relaxedRemark(o)...)
	if !r.semi {
		return append(all, remark("asynchronous: what the replicas had not received is lost with the source"))
	}
	return append(all, []Setting{
		{"plugin_load_add", "semisync_source.so;semisync_replica.so", "each server may become the source"},
		{"rpl_semi_sync_source_wait_point", "AFTER_SYNC", "no other session sees what no replica has"},
		{"rpl_semi_sync_source_wait_for_replica_count", strconv.Itoa(o.Acks), "the option --acks"},
		{"rpl_semi_sync_source_timeout", "18446744073709551615", "never falls back to asynchronous: writes wait as long as it takes"},
		{"rpl_semi_sync_source_wait_no_replica", "ON", "so also without any replica"},
		{"rpl_semi_sync_replica_enabled", "ON", "the replicas acknowledge"},
		{"replication_sender_observe_commit_only", "ON", "the manual's advice for semi-synchronous sources: fewer locks"},
		{"replication_optimize_for_static_plugin_config", "ON", "the manual's advice where plugins are not changed: fewer locks"},
	}...)
}

func (r *replicated) up(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	for _, s := range r.all {
		if err := s.createReplicator(ctx, r.d.password); err != nil {
			return err
		}
	}
	if err := r.open(ctx, r.source); err != nil {
		return err
	}
	for _, s := range r.all[1:] {
		if err := r.point(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// open makes a server the source.
func (r *replicated) open(ctx context.Context, node string) error {
	s, err := r.named(node)
	if err != nil {
		return err
	}
	r.source = node
	delete(r.pointed, node)
	if r.semi {
		if err := s.exec(ctx, "SET GLOBAL rpl_semi_sync_source_enabled = ON"); err != nil {
			return err
		}
	}
	return s.exec(ctx, "SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF")
}

// point makes a server a replica of the source.
func (r *replicated) point(ctx context.Context, s *server) error {
	// Without TLS, like the other systems: 9.x would require it by default.
	change := fmt.Sprintf(`CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%d, SOURCE_USER='%s', SOURCE_PASSWORD='%s',
		SOURCE_AUTO_POSITION=1, SOURCE_SSL=0, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=86400,
		SOURCE_HEARTBEAT_PERIOD=2`, r.d.opts.Network.Addr(r.source), serverPort, replicationUser, r.d.password)
	if err := s.exec(ctx, "SET GLOBAL super_read_only = ON", "STOP REPLICA", change, "START REPLICA"); err != nil {
		return err
	}
	r.pointed[s.name] = r.source
	return nil
}

func (r *replicated) primary(ctx context.Context) (string, error) {
	s, err := r.named(r.source)
	if err != nil {
		return "", err
	}
	if s.running() == nil || s.writable(ctx) != nil {
		return "", nil
	}
	return s.name, nil
}

func (r *replicated) writers(ctx context.Context) ([]place, error) {
	node, err := r.primary(ctx)
	if err != nil || node == "" {
		return nil, err
	}
	return []place{{node, serverPort}}, nil
}

func (r *replicated) ready(ctx context.Context) error {
	for _, s := range r.living() {
		if s.name == r.source {
			if err := s.writable(ctx); err != nil {
				return err
			}
			continue
		}
		for _, table := range []string{"replication_connection_status", "replication_applier_status"} {
			state, err := s.text(ctx, "SELECT SERVICE_STATE FROM performance_schema."+table+" WHERE CHANNEL_NAME = ''")
			if err != nil {
				return err
			}
			if state != "ON" {
				return fmt.Errorf("node %s does not replicate: %s is %q", s.name, table, state)
			}
		}
	}
	if source, err := r.named(r.source); err != nil || source.running() == nil {
		return errors.Join(err, fmt.Errorf("the source %s is down", r.source))
	}
	return nil
}

// restart also makes the server the source again, if it was, or else a replica of the present
// source.
func (r *replicated) restart(ctx context.Context, node string) error {
	if err := r.servers.restart(ctx, node); err != nil {
		return err
	}
	s, err := r.named(node)
	if err != nil {
		return err
	}
	switch {
	case node == r.source:
		return r.open(ctx, node)
	case r.pointed[node] != r.source:
		return r.point(ctx, s)
	}
	return nil // replication has started by itself
}

// failover promotes the replica that has received most, after it has applied that.
func (r *replicated) failover(ctx context.Context, dead string) ([]string, error) {
	if dead != r.source {
		return nil, nil
	}
	replicas := slices.DeleteFunc(r.living(), func(s *server) bool { return s.name == dead })
	steps := []string{fmt.Sprintf("make sure that %s stays down", dead)}
	var best *server
	var most string
	var count uint64
	for _, s := range replicas {
		if err := s.exec(ctx, "STOP REPLICA IO_THREAD"); err != nil {
			return steps, err
		}
		has, err := s.gtids(ctx, `SELECT CONCAT_WS(',', @@GLOBAL.gtid_executed, NULLIF(RECEIVED_TRANSACTION_SET, ''))
			FROM performance_schema.replication_connection_status WHERE CHANNEL_NAME = ''`)
		if err != nil {
			return steps, err
		}
		if best == nil || has.Count() > count {
			best, most, count = s, has.String(), has.Count()
		}
	}
	if best == nil {
		return steps, errors.New("fail over: no replica is left")
	}
	steps = append(steps, fmt.Sprintf("choose %s: it has received most", best.name))
	if err := best.waitExecuted(ctx, most); err != nil {
		return steps, err
	}
	steps = append(steps, fmt.Sprintf("wait until %s has applied its relay log", best.name))
	if err := best.exec(ctx, "STOP REPLICA", "RESET REPLICA ALL"); err != nil {
		return steps, err
	}
	if err := r.open(ctx, best.name); err != nil {
		return steps, err
	}
	steps = append(steps, fmt.Sprintf("open %s for writes", best.name))
	for _, s := range replicas {
		if s == best {
			continue
		}
		if err := r.point(ctx, s); err != nil {
			return steps, err
		}
		steps = append(steps, fmt.Sprintf("point %s at %s", s.name, best.name))
	}
	return append(steps, "send the clients there"), nil
}

// lag adds the bytes: how far the applier is behind the end of the source's binary
// log.
func (r *replicated) lag(ctx context.Context) (map[string]Lag, error) {
	lags, err := r.servers.lag(ctx)
	if err != nil {
		return nil, err
	}
	source, err := r.named(r.source)
	if err != nil || source.running() == nil {
		return lags, err
	}
	files, sizes, err := source.binlogs(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range r.living() {
		if s == source {
			lags[s.name] = Lag{Transactions: lags[s.name].Transactions}
			continue
		}
		file, position, err := s.applied(ctx)
		if err != nil {
			return nil, err
		}
		i := slices.Index(files, file)
		if i < 0 {
			continue // it has not begun, or needs binary logs that the source does not have any more
		}
		bytes := -position
		for _, size := range sizes[i:] {
			bytes += size
		}
		lags[s.name] = Lag{Transactions: lags[s.name].Transactions, Bytes: max(bytes, 0)}
	}
	return lags, nil
}

// binlogs returns the server's binary logs with their sizes.
func (s *server) binlogs(ctx context.Context) (files []string, sizes []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	type binlog struct {
		name string
		size int64
	}
	all, err := rows.All(ctx, s.root, func(b *binlog) []any { return []any{&b.name, &b.size, new(string)} }, "SHOW BINARY LOGS")
	if err != nil {
		return nil, nil, fmt.Errorf("ask node %s for its binary logs: %w", s.name, err)
	}
	for _, b := range all {
		files, sizes = append(files, b.name), append(sizes, b.size)
	}
	return files, sizes, nil
}

// applied returns the position in the source's binary log up to which a replica has
// applied.
func (s *server) applied(ctx context.Context) (file string, position int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	rows, err := s.root.QueryContext(ctx, "SHOW REPLICA STATUS")
	if err != nil {
		return "", 0, fmt.Errorf("ask node %s for its replication: %w", s.name, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		return "", 0, errors.Join(err, rows.Err())
	}
	values := make([]sql.NullString, len(columns))
	pointers := make([]any, len(columns))
	for i := range values {
		pointers[i] = &values[i]
	}
	if err := rows.Scan(pointers...); err != nil {
		return "", 0, fmt.Errorf("read replication of node %s: %w", s.name, err)
	}
	for i, name := range columns {
		switch name {
		case "Relay_Source_Log_File":
			file = values[i].String
		case "Exec_Source_Log_Pos":
			position, err = strconv.ParseInt(values[i].String, 10, 64)
		}
	}
	if err != nil {
		return "", 0, fmt.Errorf("read replication of node %s: %w", s.name, err)
	}
	return file, position, nil
}

func (r *replicated) stopApply(ctx context.Context, node string) error {
	s, err := r.named(node)
	if err != nil {
		return err
	}
	return s.exec(ctx, "STOP REPLICA SQL_THREAD")
}

func (r *replicated) startApply(ctx context.Context, node string) error {
	s, err := r.named(node)
	if err != nil {
		return err
	}
	return s.exec(ctx, "START REPLICA SQL_THREAD")
}
