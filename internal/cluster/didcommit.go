package cluster

// DidCommitRequest asks what became of a transaction. One of the two is set.
type DidCommitRequest struct {
	// GTID is the transaction's own.
	GTID string `json:"gtid,omitempty"`
	// SessionToken is the last GTID that a session got with an OK. The question is whether the session
	// committed anything after that.
	SessionToken string `json:"session_token,omitempty"`
}

// Outcome is what became of a transaction.
type Outcome string

// The outcomes.
const (
	OutcomeCommitted Outcome = "committed"
	// OutcomeNotCommitted: the transaction is not committed, and never will be. For a GTID: no transaction that
	// has had this GTID will be; its server may give the GTID to another transaction.
	OutcomeNotCommitted Outcome = "not-committed"
	// OutcomeUnknown: it is not known yet, or this cluster never gave out this GTID.
	OutcomeUnknown Outcome = "unknown"
)

// DidCommit is the answer to a DidCommitRequest.
type DidCommit struct {
	Outcome Outcome `json:"outcome"`
	// Reason is a sentence that says how the outcome is known, or why it is not.
	Reason string `json:"reason"`
	// Node is the node that answers.
	Node string `json:"node"`
	// Index is the log entry of the transaction in question, Epoch its epoch, and Connection the id of the
	// connection that wrote it; 0 = not known.
	Index      uint64 `json:"index,omitempty"`
	Epoch      uint64 `json:"epoch,omitempty"`
	Connection uint32 `json:"connection,omitempty"`
	// Count is how many transactions the session committed after the token. GTIDs are the first hundred of
	// them, Last is the last one.
	Count uint64   `json:"count,omitempty"`
	GTIDs []string `json:"gtids,omitempty"`
	Last  string   `json:"last,omitempty"`
}
