package agent

import (
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/raft/bulk"
)

func formatID(id uint64) string { return fmt.Sprintf("%016x", id) }

// Metrics implements api.Provider: the present counters of every package.
func (p provider) Metrics() []api.Metric {
	st := p.Status()
	m := p.stateMetrics(st)
	if p.node == nil {
		return append(m, p.routerMetrics()...)
	}
	own := st.Own()
	m = append(m, []api.Metric{
		{Name: "quorate_primary", Help: "1 while this node is open for writes.", Value: boolValue(own.Role == status.RolePrimary)},
		{Name: "quorate_leader", Help: "1 while this node is the Raft leader.", Value: boolValue(p.node.Role().Leading)},
		{Name: "quorate_term", Help: "Raft term.", Value: float64(own.Term)},
		{Name: "quorate_log_last_index", Help: "Last index in the log.", Value: float64(own.LogLast)},
		{Name: "quorate_log_commit_index", Help: "Highest committed index on this node's disk.", Value: float64(own.LogCommit)},
		{Name: "quorate_log_first_index", Help: "First index in the log.", Value: float64(own.LogFirst)},
		{Name: "quorate_log_bytes", Help: "Size of the log.", Value: float64(own.LogBytes)},
		{Name: "quorate_log_purged_segments_total", Help: "Segments that were purged.", Counter: true, Value: float64(p.log.Stats().PurgedSegments)},
		{Name: "quorate_durable_mark_index", Help: "Log index up to which InnoDB holds everything, also after a loss of power.", Value: float64(own.DurableMark)},
		{Name: "quorate_applied_index", Help: "Log index up to which mysqld has everything.", Value: float64(own.Applied)},
		{Name: "quorate_waiting_sessions", Help: "Sessions of mysqld that wait for an ACK.", Value: float64(own.WaitingSessions)},
		{Name: "quorate_events", Help: "Events that exist on this primary, and never run: there is no event scheduler.", Value: float64(own.Events)},
	}...)
	m = append(m, lagMetrics(own)...)
	m = append(m, p.logMetrics()...)
	m = append(m, bulkMetrics(p.bulk.Stats(), len(p.bulk.Blocked()))...)
	m = append(m, p.connectionMetrics()...)
	m = append(m, p.readerMetrics()...)
	m = append(m, p.paceMetrics()...)
	m = append(m, p.acksMetrics()...)
	m = append(m, p.settleMetrics()...)
	m = append(m, p.xa.metrics(time.Now())...)
	if t, ok := p.slot.Stats(); ok {
		m = append(m,
			api.Metric{Name: "quorate_tap_transactions", Help: "Transactions of this epoch handed to Raft.", Value: float64(t.Transactions)},
			api.Metric{Name: "quorate_tap_batches", Help: "Entries of this epoch handed to Raft.", Value: float64(t.Batches)},
			api.Metric{Name: "quorate_tap_acks", Help: "ACK packets sent in this epoch.", Value: float64(t.AcksSent)},
			api.Metric{Name: "quorate_tap_bytes", Help: "Bytes of binlog received in this epoch.", Value: float64(t.Bytes)},
			api.Metric{Name: "quorate_tap_outstanding", Help: "Entries received and not yet committed.", Value: float64(t.Outstanding)})
	}
	return m
}

// stateMetrics are about the node's state, also while this node takes no part in Raft.
func (p provider) stateMetrics(st status.Cluster) []api.Metric {
	own := st.Own()
	m := []api.Metric{
		{Name: "quorate_build_info", Help: "1, with the versions of quorate and Go.", Value: 1,
			Labels: map[string]string{"version": p.version, "goversion": runtime.Version()}},
		{Name: "quorate_maintenance", Help: "1 while maintenance is on.", Value: boolValue(st.Maintenance != nil)},
		{Name: "quorate_fenced", Help: "1 while an operator keeps this node's mysqld down (quorate fence).", Value: boolValue(p.keptDown.Load())},
		{Name: "quorate_recovered_apart", Help: "1 while this node refuses a recovery, or former members refuse this node's: two sides may take writes.", Value: boolValue(p.stance.TwoSides())},
		{Name: "quorate_log_healed_timestamp_seconds", Help: "When this node's log was damaged, and healed from its peers, last; 0 = never.", Value: float64(p.records.HealedAt())},
		{Name: "quorate_errant", Help: "1 while this node's mysqld holds transactions that the log lacks.", Value: boolValue(own.Role == status.RoleErrant)},
	}
	for _, role := range status.Roles() {
		m = append(m, api.Metric{Name: "quorate_node_state", Help: "1 for the role of this node, as quorate status shows it, 0 for all others.",
			Labels: map[string]string{"state": string(role)}, Value: boolValue(own.Role == role)})
	}
	for _, state := range status.LogStates() {
		m = append(m, api.Metric{Name: "quorate_log_state", Help: "1 for the state of this node's log, 0 for all others.",
			Labels: map[string]string{"state": string(state)}, Value: boolValue(own.LogState == state)})
	}
	if own.Kind != cluster.KindLogger {
		m = append(m, api.Metric{Name: "quorate_mysqld_up", Help: "1 while mysqld runs.", Value: boolValue(own.Mysqld == status.MysqldRunning)},
			api.Metric{Name: "quorate_applier_stopped", Help: "1 while this replica's mysqld does not apply what is committed: it cannot take over.", Value: boolValue(own.ApplierStopped != "")})
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
		api.Metric{Name: "quorate_voters", Help: "Nodes with a vote.", Value: float64(voters)},
		api.Metric{Name: "quorate_voters_reachable", Help: "Nodes with a vote that this node hears of, itself included.", Value: float64(reachable)},
		api.Metric{Name: "quorate_failures_survived", Help: "Nodes that may fail, whichever they are, and writes go on: as the primary sees it, without one as this node does. -1: writes cannot go on as it is.", Value: float64(st.Quorum.Survives)})
}

// Collectors implements api.Provider.
func (p provider) Collectors() []prometheus.Collector {
	if p.node == nil {
		return nil
	}
	return append(p.node.Collectors(), p.tapSeconds.propose, p.tapSeconds.ack)
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// lagMetrics are absent where the lag is not known: 0 would say that there is none.
func lagMetrics(own status.Node) []api.Metric {
	if own.LagUnknown {
		return nil
	}
	return []api.Metric{
		{Name: "quorate_lag_transactions", Help: "Committed transactions that mysqld lacks. Absent while that is not known: there is no leader, no mysqld, or a log that takes nothing.", Value: float64(own.LagTransactions)},
		{Name: "quorate_lag_seconds", Help: "Age of the oldest committed transaction that mysqld lacks. Absent while that is not known.", Value: own.LagSeconds},
	}
}

func (p provider) logMetrics() []api.Metric {
	s := p.log.Stats()
	return []api.Metric{
		{Name: "quorate_log_appends_total", Help: "Group commits of the log.", Counter: true, Value: float64(s.Appends)},
		{Name: "quorate_log_entries_total", Help: "Entries appended.", Counter: true, Value: float64(s.Entries)},
		{Name: "quorate_log_bytes_total", Help: "Bytes appended.", Counter: true, Value: float64(s.Bytes)},
		{Name: "quorate_log_syncs_total", Help: "fsyncs of the log and its hard state.", Counter: true, Value: float64(s.Syncs)},
		{Name: "quorate_log_sync_seconds_total", Help: "Time in fsync.", Counter: true, Value: s.SyncTime.Seconds()},
		{Name: "quorate_log_cache_hits_total", Help: "Entries read from the cache of the newest.", Counter: true, Value: float64(s.CacheEntries)},
		{Name: "quorate_log_cache_misses_total", Help: "Entries read that were older than that.", Counter: true, Value: float64(s.PrefetchEntries + s.MissedEntries)},
		{Name: "quorate_log_prefetch_hits_total", Help: "Of those, entries that had been read ahead.", Counter: true, Value: float64(s.PrefetchEntries)},
		{Name: "quorate_log_prefetch_misses_total", Help: "Of those, entries whose reader waited for the disk.", Counter: true, Value: float64(s.MissedEntries)},
		{Name: "quorate_log_prefetch_bytes_total", Help: "Bytes of entries read ahead.", Counter: true, Value: float64(s.PrefetchBytes)},
		{Name: "quorate_log_prefetch_wasted_bytes_total", Help: "Bytes read ahead that nobody came for.", Counter: true, Value: float64(s.WastedBytes)},
		{Name: "quorate_log_truncations_total", Help: "Conflicts that removed entries.", Counter: true, Value: float64(s.Truncations)},
	}
}

func bulkMetrics(s bulk.Stats, blocked int) []api.Metric {
	return []api.Metric{
		{Name: "quorate_bulk_sent_bytes_total", Help: "Bytes sent to peers beside Raft: stages, entries for a repair.", Counter: true, Value: float64(s.BytesSent)},
		{Name: "quorate_bulk_received_bytes_total", Help: "Bytes received from peers beside Raft.", Counter: true, Value: float64(s.BytesReceived)},
		{Name: "quorate_stages_pushed_total", Help: "Stages that peers said they hold after this node pushed them, one for each peer.", Counter: true, Value: float64(s.StagesPushed)},
		{Name: "quorate_stages_received_total", Help: "Stages that were pushed to this node and are held.", Counter: true, Value: float64(s.StagesReceived)},
		{Name: "quorate_stages_fetched_total", Help: "Stages that this node lacked and fetched.", Counter: true, Value: float64(s.StagesFetched)},
		{Name: "quorate_stages_aborted_total", Help: "Copies of stages to this node that did not come to their end.", Counter: true, Value: float64(s.StagesAborted)},
		{Name: "quorate_stages_refused_total", Help: "Pushes of stages that a peer refused because its disk was full.", Counter: true, Value: float64(s.StagesRefused)},
		{Name: "quorate_stages_blocked", Help: "Stages that wait now because a disk is full, or because they cannot be copied to a majority.", Value: float64(blocked)},
	}
}

func (p provider) connectionMetrics() []api.Metric {
	if !p.runsMysqld() {
		return p.routerMetrics()
	}
	f := p.feed.Stats()
	m := []api.Metric{
		{Name: "quorate_feed_dumps", Help: "Replicas that read from the feed.", Value: float64(f.Dumps)},
		{Name: "quorate_feed_bytes_total", Help: "Bytes sent to replicas.", Counter: true, Value: float64(f.Bytes)},
		{Name: "quorate_feed_events_total", Help: "Events sent to replicas.", Counter: true, Value: float64(f.Events)},
		{Name: "quorate_feed_expelled_total", Help: "Connections to the feed that did not log in for too long, closed for others.", Counter: true, Value: float64(f.Expelled)},
	}
	return append(m, p.routerMetrics()...)
}

func (p provider) routerMetrics() []api.Metric {
	if p.router == nil {
		return p.peerMetrics() // this node is out
	}
	r := p.router.Stats()
	m := []api.Metric{
		{Name: "quorate_router_sessions", Help: "Clients connected to a primary.", Value: float64(r.Sessions)},
		{Name: "quorate_router_held", Help: "Clients that wait for a primary.", Value: float64(r.Held)},
		{Name: "quorate_router_accepted_total", Help: "Clients that came to this node.", Counter: true, Value: float64(r.Accepted)},
		{Name: "quorate_router_rejected_total", Help: "Clients turned away at a bound.", Counter: true, Value: float64(r.Rejected)},
		{Name: "quorate_router_denied_total", Help: "Clients whose login the server refused. With TLS: clients whose session it ended at their login, or right after it.", Counter: true, Value: float64(r.Denied)},
		{Name: "quorate_router_refused_total", Help: "Clients from where none may come (router.allow), closed.", Counter: true, Value: float64(r.Refused)},
		{Name: "quorate_router_expelled_total", Help: "Clients that did not log in for too long, closed for others.", Counter: true, Value: float64(r.Expelled)},
		{Name: "quorate_router_hold_timeouts_total", Help: "Clients that waited for a primary in vain.", Counter: true, Value: float64(r.HoldTimeouts)},
		{Name: "quorate_router_fenced_total", Help: "Sessions closed because this node may not serve.", Counter: true, Value: float64(r.ClosedByFence + r.ClosedByLease)},
	}
	return append(m, p.peerMetrics()...)
}

func (p provider) peerMetrics() []api.Metric {
	if p.peers == nil {
		return nil // this node was removed
	}
	s := p.peers.Stats()
	m := []api.Metric{
		{Name: "quorate_peer_refused_total", Help: "Connections of other agents that this node refused.", Counter: true, Value: float64(s.HandshakesRejected)},
		{Name: "quorate_peer_expelled_total", Help: "Connections to this agent that said too little for too long, closed for others.", Counter: true, Value: float64(s.HandshakesExpelled)},
		{Name: "quorate_peer_misaddressed_total", Help: "Messages of Raft to nodes that are no members, dropped.", Counter: true, Value: float64(s.Misaddressed)},
		{Name: "quorate_peer_unexpected_total", Help: "Messages of Raft from peers that no agent sends: each has ended its connection.", Counter: true, Value: float64(s.Unexpected)},
		{Name: "quorate_status_too_large_total", Help: "Statuses of this node that were too long to be sent: its peers take it for dead.", Counter: true, Value: float64(s.StatusTooLarge)},
	}
	for _, peer := range s.Peers {
		labels := map[string]string{"peer": p.board.Name(peer.ID)}
		m = append(m,
			api.Metric{Name: "quorate_peer_connected", Help: "1 while our control connection to the peer stands.", Labels: labels, Value: boolValue(peer.Control.Connected)},
			api.Metric{Name: "quorate_peer_plain", Help: "1 while a connection to the peer is without TLS.", Labels: labels, Value: boolValue(peer.Plain)},
			api.Metric{Name: "quorate_peer_connection_losses_total", Help: "Connections to the peer that were lost.", Counter: true, Labels: labels, Value: float64(peer.Control.Losses + peer.Append.Losses)},
			api.Metric{Name: "quorate_peer_sent_messages_total", Help: "Messages of Raft, and of what agents tell each other beside it, sent to the peer.", Counter: true, Labels: labels, Value: float64(peer.Control.SentMessages + peer.Append.SentMessages)},
			api.Metric{Name: "quorate_peer_sent_log_bytes_total", Help: "Bytes of messages with the log's entries that Raft sent to the peer.", Counter: true, Labels: labels, Value: float64(peer.Append.SentBytes)})
	}
	return m
}

func (p provider) paceMetrics() []api.Metric {
	if !p.runsMysqld() {
		return nil
	}
	pace, slowed, waited := p.lagBound.Now()
	return []api.Metric{
		{Name: "quorate_apply_bytes_per_second", Help: "What mysqld applies while it has something to apply; 0 = not known.", Value: p.board.Own().ApplyRate},
		{Name: "quorate_best_replica_backlog_seconds", Help: "How long the best replica would take to apply what it lacks, on a primary.", Value: pace.Best.BacklogSeconds},
		{Name: "quorate_tap_slowed", Help: "1 while writes are slowed down for the apply lag.", Value: boolValue(pace.Limited)},
		{Name: "quorate_tap_slowed_batches_total", Help: "Entries that waited for the apply lag.", Counter: true, Value: float64(slowed)},
		{Name: "quorate_tap_slowed_seconds_total", Help: "Time that entries waited for the apply lag.", Counter: true, Value: waited.Seconds()},
	}
}
