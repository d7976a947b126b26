package binlog

// ParseXAPrepareEvent reports which XA transaction one event prepares, if it is
// an XA_PREPARE event (with its checksum) that leaves something prepared. It
// returns ErrMalformed for a damaged one.
func ParseXAPrepareEvent(e Event) (xid XID, prepares bool, err error) {
	if e.Type() != TypeXAPrepare {
		return XID{}, false, nil
	}
	return parseXAPrepare(e.Body())
}
