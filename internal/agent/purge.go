package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// purgeEvery is how often the log is looked at for segments that may go.
const purgeEvery = time.Minute

// purgeTimeout bounds the wait for a purge that an operator asks for: it syncs the
// directory for every segment that it removes.
const purgeTimeout = time.Minute

// retention is the configured retention of the log.
func (a *Agent) retention() replay.Retention {
	return replay.Retention{BytesMax: int64(a.cfg.Log.RetentionSize), AgeMax: a.cfg.Log.RetentionAge}
}

// purgeBlocked says why the log is longer than it should be; "" = it is not.
func (a *Agent) purgeBlocked() string {
	blocked := ""
	if a.Purger != nil {
		blocked = a.Purger.Blocked()
	}
	xa := a.xa.Why(time.Now())
	return strings.TrimPrefix(strings.TrimSuffix(blocked+"; "+xa, "; "), "; ")
}

// controlPurge purges this node's log now, or says what that would remove.
func (a *Agent) controlPurge(_ context.Context, r control.Request, args cluster.PurgeRequest) (operate.Done, error) {
	keep := a.retention()
	if size := args.RetentionSize; size != nil {
		if *size < 0 {
			return operate.Done{}, control.Errorf(control.CodeInvalid, "retention_size %d is not a number of bytes", *size)
		}
		keep = replay.Retention{BytesMax: *size}
	}
	keep.UpTo = args.UpTo
	archived, _, known := a.backups.Archive()
	if args.DryRun {
		p := a.Purger.Plan(keep)
		p.Note = archiveLacks(p, archived, known)
		return operate.Done{Result: p, ReadOnly: true}, nil
	}
	p, err := a.Purger.Purge(keep)
	p.Note = archiveLacks(p, archived, known)
	d := operate.Done{Result: p, ReadOnly: err == nil && !p.Done, What: "purge the log of " + a.self.Name}
	if p.Done {
		d.What += fmt.Sprintf(" up to entry %d, %d bytes", p.UpTo, p.Bytes)
	}
	return d, err
}

// archiveLacks says which entries of a purge are not in the archive yet; "" = it has them, or no archive has told this
// agent how far it is (known=false).
func archiveLacks(p cluster.PurgePlan, archived uint64, known bool) string {
	if !known || p.UpTo <= archived || len(p.Segments) == 0 {
		return ""
	}
	return fmt.Sprintf("the archive has the log up to entry %d, and lacks entries %d-%d: it gets them only if another node still has them",
		archived, max(archived+1, p.Segments[0].First), p.UpTo)
}
