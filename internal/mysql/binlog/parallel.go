package binlog

import "encoding/binary"

// LimitParallel returns a GTID event that lets a replica apply at most workers transactions at
// the same time. The transactions of a file have consecutive sequence numbers, so it raises
// last committed to sequence number - workers. A transaction then waits for more transactions
// before it, never for fewer. Last committed of 0 stays: with it a coordinator waits for all
// that is under way (SEQ_UNINIT in rpl_mta_submode.cc).
//
// Why: a coordinator that finds all its workers busy calls sched_yield until one is free
// (get_least_occupied_worker in rpl_mta_submode.cc). Where it must wait for last committed, it
// sleeps. So workers should be the number of workers of the replica.
//
// It returns e itself where last committed is high enough, or where it cannot rewrite e: e is
// not an untagged GTID event, has a wrong checksum (a new one would hide the damage from the
// replica) or no logical clock, or workers is 0. (In a tagged event the length of each field
// may change, and with it two other lengths.) Otherwise the new event is in dst's memory.
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
