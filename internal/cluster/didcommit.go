package cluster

// DidCommitRequest asks what became of a transaction. One of the two is set.
type DidCommitRequest struct {
	// GTID is the transaction's own.
	GTID string `json:"gtid,omitempty"`
	// SessionToken is the last GTID that a session got with an OK: the question is
	// whether the session committed anything after it.
	SessionToken string `json:"session_token,omitempty"`
}

// Outcome is what became of a transaction.
type Outcome string

// The outcomes.
const (
	OutcomeCommitted Outcome = "committed"
	// OutcomeNotCommitted: it is not, and never will be. Of a GTID: no transaction that had
	// it so far will be; its server may give it to another one.
	OutcomeNotCommitted Outcome = "not-committed"
	// OutcomeUnknown: it is not known yet, or no such GTID was given by this cluster.
	OutcomeUnknown Outcome = "unknown"
)

// DidCommit is the answer.
type DidCommit struct {
	Outcome Outcome `json:"outcome"`
	// Reason is a sentence: how that is known, or why not.
	Reason string `json:"reason"`
	// Node is the node that answers.
	Node string `json:"node"`
	// Index is the entry of the transaction that the outcome is about, Epoch its
	// epoch, and Connection the id of the connection that wrote it; 0 = not known.
	Index      uint64 `json:"index,omitempty"`
	Epoch      uint64 `json:"epoch,omitempty"`
	Connection uint32 `json:"connection,omitempty"`
	// Count is how many transactions the session committed after the token, GTIDs
	// the first hundred of them, Last the last one.
	Count uint64   `json:"count,omitempty"`
	GTIDs []string `json:"gtids,omitempty"`
	Last  string   `json:"last,omitempty"`
}
