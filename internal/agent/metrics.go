package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/router"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/sys/metrics"
)

func formatID(id uint64) string { return fmt.Sprintf("%016x", id) }

// Metrics implements api.Provider: the present counters of every package.
func (p provider) Metrics() []metrics.Sample {
	st := p.Status()
	m := append(p.stateMetrics(st), p.keyMetrics()...)
	m = append(m, changeMetrics(st.LastChange)...)
	if !p.TakesPart() {
		return append(m, p.routerMetrics()...)
	}
	own := st.Own()
	m = append(m, []metrics.Sample{
		metrics.Bool("quorate_leader", p.Raft.Role().Leading),
		metrics.Of("quorate_term", own.Term),
		metrics.Of("quorate_durable_mark_index", own.DurableMark),
		metrics.Of("quorate_applied_index", own.Applied),
		metrics.Of("quorate_waiting_sessions", own.WaitingSessions),
		metrics.Of("quorate_events", own.Events),
	}...)
	m = append(m, lagMetrics(own)...)
	m = append(m, p.logMetrics(own)...)
	m = append(m, bulkMetrics(p.Bulk.Stats(), len(p.Bulk.Blocked()))...)
	m = append(m, p.connectionMetrics()...)
	m = append(m, p.readerMetrics()...)
	m = append(m, p.paceMetrics()...)
	m = append(m, p.acksMetrics()...)
	m = append(m, p.settleMetrics()...)
	m = append(m, p.hookMetrics()...)
	m = append(m, p.backupMetrics()...)
	m = append(m, p.told.Metrics()...)
	m = append(m, p.xa.Metrics(time.Now())...)
	m = append(m, p.following.Metrics(time.Now())...)
	if t, ok := p.Slot.Stats(); ok {
		m = append(m,
			metrics.Of("quorate_tap_transactions_total", t.Transactions),
			metrics.Of("quorate_tap_batches_total", t.Batches),
			metrics.Of("quorate_tap_acks_total", t.AcksSent),
			metrics.Of("quorate_tap_bytes_total", t.Bytes),
			metrics.Of("quorate_tap_outstanding", t.Outstanding))
	}
	return m
}

// stateMetrics are about the node's state, also while this node takes no part in Raft.
func (p provider) stateMetrics(st status.Cluster) []metrics.Sample {
	own := st.Own()
	m := []metrics.Sample{
		metrics.Of("quorate_build_info", 1, p.version, runtime.Version()),
		metrics.Bool("quorate_primary", own.Role == status.RolePrimary),
		metrics.Bool("quorate_primary_known", st.Primary != ""),
		metrics.Bool("quorate_maintenance", st.Maintenance != nil),
		metrics.Bool("quorate_fenced", p.keptDown.Load()),
		metrics.Bool("quorate_recovered_apart", p.stance.TwoSides()),
		metrics.Of("quorate_log_healed_timestamp_seconds", p.records.HealedAt()),
		metrics.Bool("quorate_errant", own.Role == status.RoleErrant),
	}
	m = append(m, metrics.OneOf("quorate_node_state", status.Roles(), own.Role)...)
	m = append(m, metrics.OneOf("quorate_log_state", status.LogStates(), own.LogState)...)
	if own.Seed != nil {
		m = append(m, metrics.Of("quorate_join_bytes", own.Seed.Bytes))
	}
	if own.Kind != cluster.KindLogger {
		m = append(m, metrics.Bool("quorate_mysqld_up", own.Mysqld == status.MysqldRunning),
			metrics.Of("quorate_mysqld_ends_total", p.local.Ends.Load()),
			metrics.Bool("quorate_applier_stopped", own.ApplierStopped != "" && own.Mysqld == status.MysqldRunning))
	}
	if st.Quorum == nil {
		return m
	}
	voters, reachable := 0, 0
	for _, n := range st.Nodes {
		if n.Kind != cluster.KindLearner {
			voters++
			if n.Reachable {
				reachable++
			}
		}
	}
	return append(m,
		metrics.Of("quorate_voters", voters),
		metrics.Of("quorate_voters_reachable", reachable),
		metrics.Of("quorate_failures_survived", st.Quorum.Survives))
}

// Collectors implements api.Provider.
func (p provider) Collectors() []prometheus.Collector {
	if !p.TakesPart() {
		return nil
	}
	all := append(p.Raft.Collectors(), p.commits.Collectors()...)
	for _, c := range p.changes {
		all = append(all, c)
	}
	return all
}

// newChanges makes the counters of how often this node opens for writes, one for each kind of change.
func newChanges() map[cluster.HistoryWhat]prometheus.Counter {
	m := map[cluster.HistoryWhat]prometheus.Counter{}
	for _, what := range []cluster.HistoryWhat{cluster.HistoryFirst, cluster.HistoryFailover, cluster.HistorySwitchover, cluster.HistoryReopened} {
		m[what] = metrics.Counter("quorate_primary_changes_total", string(what))
	}
	return m
}

// changeMetrics are about the newest change of the primary. What is not known is absent.
func changeMetrics(last *cluster.HistoryRow) (m []metrics.Sample) {
	if last == nil {
		return nil
	}
	what := string(last.What)
	m = append(m, metrics.Of("quorate_last_primary_change_timestamp_seconds", last.At.Unix(), what))
	if last.NoPrimaryMs > 0 {
		m = append(m, metrics.Of("quorate_last_primary_change_no_primary_seconds", float64(last.NoPrimaryMs)/1000, what))
	}
	if last.LastWriteMs > 0 {
		m = append(m, metrics.Of("quorate_last_primary_change_last_write_seconds", float64(last.LastWriteMs)/1000, what))
	}
	return m
}

// keyMetrics are about TLS, between agents and of mysqld.
func (p provider) keyMetrics() []metrics.Sample {
	state := p.board.State()
	own, _ := state.MemberByID(p.self.ID)
	m := []metrics.Sample{metrics.Bool("quorate_key_changing", own.NextKey != "")}
	m = append(m, metrics.OneOf("quorate_peer_security", []cluster.PeerSecurity{"plain", cluster.PeersBoth, cluster.PeersRequire}, cmp.Or(state.PeerSecurity, "plain"))...)
	if ends := p.local.CertificateEnds.Load(); ends > 0 {
		m = append(m, metrics.Of("quorate_certificate_end_timestamp_seconds", ends, "mysqld"))
	}
	if k := p.keys.Shown(); k != nil && !k.Ends().IsZero() {
		m = append(m, metrics.Of("quorate_certificate_end_timestamp_seconds", k.Ends().Unix(), "peer"))
	}
	return m
}

// diskRoom is how much of a disk is free, in bytes.
type diskRoom struct {
	device, free, size uint64
	shared             bool // mysqld's data: with the log
}

// roundedBytes is how much may differ what two looks at one disk, one after the other, say that is free: ZFS rounds it to the
// record of each dataset, and somebody may write.
const roundedBytes = 1 << 20

// is tells whether two looks, one after the other, were at one disk. Subvolumes of btrfs and datasets of a ZFS pool have devices of
// their own, datasets also sizes: what they have in common is what is free.
func (r diskRoom) is(other diskRoom) bool {
	return r.device == other.device || r.free > 0 && max(r.free, other.free)-min(r.free, other.free) <= roundedBytes
}

// lookAtDisk looks how full the disk of a directory is; nil = it cannot be seen.
func (a *Agent) lookAtDisk(dir string) *diskRoom {
	var at unix.Stat_t
	var disk unix.Statfs_t
	if errors.Join(unix.Stat(a.data.Join(dir), &at), unix.Statfs(a.data.Join(dir), &disk)) != nil {
		return nil
	}
	return &diskRoom{device: at.Dev, free: disk.Bavail * uint64(disk.Bsize), size: disk.Blocks * uint64(disk.Bsize)}
}

// lookAtDataDisk notes how full the disk of mysqld's data is, so that a request need not wait for a disk.
func (a *Agent) lookAtDataDisk() error {
	log, data := a.lookAtDisk("log"), a.lookAtDisk("mysql")
	if log != nil && data != nil {
		data.shared = data.is(*log)
	}
	a.dataDisk.Store(data)
	return nil
}

// runDataDisk has a goroutine of its own: this disk may hang where the log's does not.
func (a *Agent) runDataDisk(ctx context.Context) error {
	return every(ctx, stateEvery, a.lookAtDataDisk)
}

// inPlaceEvery is how often the agent looks whether its data directory and its log are still there.
const inPlaceEvery = 2 * time.Second

// runInPlace fails once the data directory or the log in it was removed or replaced: what this node acknowledges from
// then on is on no disk.
func (a *Agent) runInPlace(ctx context.Context) error {
	return every(ctx, inPlaceEvery, func() error { return errors.Join(a.data.InPlace(), a.log.InPlace()) })
}

// lagMetrics are absent where the lag is not known: 0 would say that there is none.
func lagMetrics(own status.Node) []metrics.Sample {
	if own.LagUnknown {
		return nil
	}
	return []metrics.Sample{
		metrics.Of("quorate_lag_transactions", own.LagTransactions),
		metrics.Of("quorate_lag_bytes", own.LagBytes),
		metrics.Of("quorate_lag_seconds", own.Lag()),
	}
}

func (p provider) logMetrics(own status.Node) []metrics.Sample {
	s := p.log.Stats()
	m := []metrics.Sample{
		metrics.Of("quorate_log_last_index", own.LogLast),
		metrics.Of("quorate_log_commit_index", own.LogCommit),
		metrics.Of("quorate_log_first_index", own.LogFirst),
		metrics.Of("quorate_log_bytes", own.LogBytes),
		metrics.Bool("quorate_purge_blocked", own.PurgeBlocked != ""),
		metrics.Of("quorate_log_purged_segments_total", s.PurgedSegments),
		metrics.Of("quorate_log_appends_total", s.Appends),
		metrics.Of("quorate_log_entries_total", s.Entries),
		metrics.Of("quorate_log_bytes_total", s.Bytes),
		metrics.Of("quorate_log_syncs_total", s.Syncs),
		metrics.Of("quorate_log_sync_seconds_total", s.SyncTime.Seconds()),
		metrics.Of("quorate_log_cache_hits_total", s.CacheEntries),
		metrics.Of("quorate_log_cache_misses_total", s.PrefetchEntries+s.MissedEntries),
		metrics.Of("quorate_log_prefetch_hits_total", s.PrefetchEntries),
		metrics.Of("quorate_log_prefetch_misses_total", s.MissedEntries),
		metrics.Of("quorate_log_prefetch_bytes_total", s.PrefetchBytes),
		metrics.Of("quorate_log_prefetch_wasted_bytes_total", s.WastedBytes),
		metrics.Of("quorate_log_truncations_total", s.Truncations),
	}
	if d := p.logDisk.Load(); d != nil {
		m = append(m, metrics.Of("quorate_log_disk_free_bytes", d.free), metrics.Of("quorate_log_disk_size_bytes", d.size))
	}
	if d := p.dataDisk.Load(); d != nil {
		m = append(m, metrics.Of("quorate_data_disk_free_bytes", d.free), metrics.Of("quorate_data_disk_size_bytes", d.size),
			metrics.Bool("quorate_log_disk_shared", d.shared))
	}
	return m
}

func bulkMetrics(s bulk.Stats, blocked int) []metrics.Sample {
	return []metrics.Sample{
		metrics.Of("quorate_bulk_sent_bytes_total", s.BytesSent),
		metrics.Of("quorate_bulk_received_bytes_total", s.BytesReceived),
		metrics.Of("quorate_stages_pushed_total", s.StagesPushed),
		metrics.Of("quorate_stages_received_total", s.StagesReceived),
		metrics.Of("quorate_stages_fetched_total", s.StagesFetched),
		metrics.Of("quorate_stages_aborted_total", s.StagesAborted),
		metrics.Of("quorate_stages_refused_total", s.StagesRefused),
		metrics.Of("quorate_stages_blocked", blocked),
	}
}

func (p provider) connectionMetrics() []metrics.Sample {
	if !p.runsMysqld() {
		return p.routerMetrics()
	}
	f := p.feed.Stats()
	m := []metrics.Sample{
		metrics.Of("quorate_feed_dumps", f.Dumps),
		metrics.Of("quorate_feed_bytes_total", f.Bytes),
		metrics.Of("quorate_feed_events_total", f.Events),
		metrics.Of("quorate_feed_expelled_total", f.Expelled),
	}
	return append(m, p.routerMetrics()...)
}

func (p provider) routerMetrics() []metrics.Sample {
	if p.router == nil {
		return p.peerMetrics() // this node is out
	}
	m := routerMetrics(p.router.Stats(), "read_write")
	if p.reads.Router() != nil {
		m = append(m, routerMetrics(p.reads.Router().Stats(), "read_only")...)
	}
	return append(m, p.peerMetrics()...)
}

// routerMetrics are the metrics of one port for clients.
func routerMetrics(r router.Stats, port string) []metrics.Sample {
	return []metrics.Sample{
		metrics.Of("quorate_router_sessions", r.Sessions, port),
		metrics.Of("quorate_router_held", r.Held, port),
		metrics.Of("quorate_router_accepted_total", r.Accepted, port),
		metrics.Of("quorate_router_rejected_total", r.Rejected, port),
		metrics.Of("quorate_router_denied_total", r.Denied, port),
		metrics.Of("quorate_router_refused_total", r.Refused, port),
		metrics.Of("quorate_router_expelled_total", r.Expelled, port),
		metrics.Of("quorate_router_hold_timeouts_total", r.HoldTimeouts, port),
		metrics.Of("quorate_router_fenced_total", r.ClosedByFence+r.ClosedByLease, port),
		metrics.Of("quorate_router_left_total", r.ClosedByChange, port),
	}
}

func (p provider) peerMetrics() []metrics.Sample {
	if p.peers == nil {
		return nil // this node was removed
	}
	s := p.peers.Stats()
	m := []metrics.Sample{
		metrics.Of("quorate_peer_refused_total", s.HandshakesRejected),
		metrics.Of("quorate_peer_expelled_total", s.HandshakesExpelled),
		metrics.Of("quorate_peer_turned_away_total", s.HandshakesTurnedAway),
		metrics.Of("quorate_peer_misaddressed_total", s.Misaddressed),
		metrics.Of("quorate_peer_unexpected_total", s.Unexpected),
		metrics.Of("quorate_status_too_large_total", s.StatusTooLarge),
	}
	for _, peer := range s.Peers {
		name := p.board.Name(peer.ID)
		m = append(m,
			metrics.Bool("quorate_peer_connected", peer.Control.Connected, name),
			metrics.Bool("quorate_peer_plain", peer.Plain, name),
			metrics.Of("quorate_peer_connection_losses_total", peer.Control.Losses+peer.Append.Losses, name),
			metrics.Of("quorate_peer_sent_messages_total", peer.Control.SentMessages+peer.Append.SentMessages, name),
			metrics.Of("quorate_peer_sent_log_bytes_total", peer.Append.SentBytes, name),
			metrics.Of("quorate_peer_streams_refused_total", peer.BulkRefused+peer.CallRefused, name))
	}
	return m
}

func (p provider) paceMetrics() []metrics.Sample {
	if !p.runsMysqld() {
		return nil
	}
	pace, slowed, waited := p.LagBound.Now()
	return []metrics.Sample{
		metrics.Of("quorate_apply_bytes_per_second", p.board.Own().ApplyRate),
		metrics.Of("quorate_best_replica_backlog_seconds", pace.Best.BacklogSeconds),
		metrics.Bool("quorate_tap_slowed", pace.Limited),
		metrics.Of("quorate_tap_slowed_batches_total", slowed),
		metrics.Of("quorate_tap_slowed_seconds_total", waited.Seconds()),
	}
}
