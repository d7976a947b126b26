package cluster

import (
	"time"

	"github.com/quorate/quorate/internal/config/units"
)

// PurgeRequest asks for a purge, or for its plan.
type PurgeRequest struct {
	// RetentionSize takes the place of the configured retention, its age too; nil
	// = the configured one. What a member needs stays, whatever it says.
	RetentionSize *int64 `json:"retention_size,omitempty"`
	// DryRun asks for the plan alone.
	DryRun bool `json:"dry_run,omitempty"`
}

// String says in a line what is asked for.
func (r PurgeRequest) String() string {
	if r.RetentionSize == nil {
		return "purge the log"
	}
	return "purge the log, but for " + units.Size(*r.RetentionSize)
}

// PurgePlan says of every segment of one node's log whether it may go, and why.
type PurgePlan struct {
	// Node is the name of the node whose log it is.
	Node string `json:"node"`
	// UpTo is the last index that goes; 0 = nothing does.
	UpTo uint64 `json:"up_to"`
	// Bytes is what that frees.
	Bytes int64 `json:"bytes"`
	// Blocked says in a sentence why the log stays longer than its retention;
	// "" = it does not.
	Blocked string `json:"blocked,omitempty"`
	// Segments are all of the log, oldest first. Those that go come first.
	Segments []PurgeSegment `json:"segments"`
	// Done: it was carried out.
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
