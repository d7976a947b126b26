package binlog

// ParseXAPrepareEvent reports whether one event (with its checksum) is an XA_PREPARE event that
// leaves an XA transaction prepared, and which. It returns ErrMalformed for a damaged
// XA_PREPARE event.
func ParseXAPrepareEvent(e Event) (xid XID, prepares bool, err error) {
	if e.Type() != TypeXAPrepare {
		return XID{}, false, nil
	}
	return parseXAPrepare(e.Body())
}
