package binlog

import "encoding/binary"

// LimitParallel returns a GTID event that lets a replica apply at most workers
// transactions at the same time: those of its file are numbered one by one, so last
// committed rises to sequence number - workers. What depended on an earlier transaction
// only waits for more of them. Last committed of 0 stays: with it a coordinator waits for
// all that is under way (SEQ_UNINIT in rpl_mta_submode.cc).
//
// A coordinator that finds all its workers busy calls sched_yield until one is not
// (get_least_occupied_worker in rpl_mta_submode.cc). Where it has to wait for last
// committed it sleeps. So workers is the number that the replica has.
//
// It returns e itself where nothing has to rise, and for what it cannot rewrite: no
// untagged GTID event, a wrong checksum (a new one would hide the damage from the replica),
// no logical clock, workers of 0. (In a tagged event each field may take another length,
// and the lengths that follow from it are told in two places.) Otherwise the event is in
// dst's memory.
func LimitParallel(dst []byte, e Event, workers int) Event {
	if workers <= 0 || e.Type() != TypeGTID || VerifyChecksum(e) != nil {
		return e
	}
	info, _, err := parseUntagged(e.Body())
	last := info.SequenceNumber - int64(workers)
	if err != nil || info.SequenceNumber <= 0 || info.LastCommitted <= 0 || last <= info.LastCommitted {
		return e
	}
	dst = append(dst[:0], e[:len(e)-ChecksumBytes]...)
	binary.LittleEndian.PutUint64(dst[HeaderBytes+gtidLastCommitted:], uint64(last))
	return endEvent(dst, 0)
}
