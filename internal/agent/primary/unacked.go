package primary

// unackedLooks is how many looks in a row must find a session that waits for an ACK.
const unackedLooks = 2

// unacked knows whether a client's session waits for an ACK on a replica. Some statements that
// read-only does not stop (FLUSH STATUS, ANALYZE TABLE … UPDATE HISTOGRAM) go into the replica's
// binlog and wait, and nobody acknowledges a replica. The applier's commits wait behind such a
// statement, and a KILL of its session does not help: only the end of mysqld does. Nothing of
// the statement was acknowledged, and the next mysqld does not have it. A former primary becomes
// a replica only once no session waits (Replicate.tidy).
//
// Its zero value is ready.
type unacked struct {
	incarnation uint64
	looks       int
}

// look takes the state of a replica, and returns why its mysqld must end; "" = it need not.
func (u *unacked) look(incarnation uint64, r ReplicaStatus) string {
	if u.incarnation != incarnation || r.Unacknowledged == "" {
		*u = unacked{incarnation: incarnation}
	}
	if r.Unacknowledged == "" {
		return ""
	}
	if u.looks++; u.looks < unackedLooks {
		return ""
	}
	return unackedText(r)
}

func unackedText(r ReplicaStatus) string {
	return r.Unacknowledged + ", which nobody gives to a replica, and the applier cannot commit behind it: " +
		"mysqld starts again without that statement, which was not acknowledged"
}
