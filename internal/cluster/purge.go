package cluster

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/config/units"
)

// PurgeRequest asks for a purge, or for its plan.
type PurgeRequest struct {
	// RetentionSize replaces the configured retention, its age too; nil = the configured retention. What a
	// member needs is kept in any case.
	RetentionSize *int64 `json:"retention_size,omitempty"`
	// UpTo is the last entry that may be removed: that of the plan which a person has seen; 0 = no bound.
	UpTo uint64 `json:"up_to,omitempty"`
	// DryRun asks only for the plan.
	DryRun bool `json:"dry_run,omitempty"`
}

// String says in one line what is asked for.
func (r PurgeRequest) String() string {
	text := "purge the log"
	if r.UpTo != 0 {
		text += fmt.Sprintf(" up to entry %d", r.UpTo)
	}
	if r.RetentionSize != nil {
		text += ", but for " + units.Size(*r.RetentionSize)
	}
	return text
}

// PurgePlan says of every segment of one node's log whether it may be removed, and why.
type PurgePlan struct {
	// Node is the name of the node whose log it is.
	Node string `json:"node"`
	// UpTo is the last index that will be removed; 0 = none will.
	UpTo uint64 `json:"up_to"`
	// Bytes is how much space that frees.
	Bytes int64 `json:"bytes"`
	// Blocked says in one sentence why the log stays longer than its retention; "" = it does not.
	Blocked string `json:"blocked,omitempty"`
	// Note says what the archive loses by it; "" = nothing is known to be lost.
	Note string `json:"note,omitempty"`
	// Segments are all segments of the log, oldest first. Those that will be removed come first.
	Segments []PurgeSegment `json:"segments"`
	// Done: the purge was carried out.
	Done bool `json:"done"`
}

// PurgeSegment is one segment of a plan.
type PurgeSegment struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Bytes int64  `json:"bytes"`
	// Written is when its last transaction was committed; zero if it has none.
	Written time.Time `json:"written,omitzero"`
	Purge   bool      `json:"purge"`
	Why     string    `json:"why"`
}
