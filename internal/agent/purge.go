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
	if args.DryRun {
		return operate.Done{Result: a.Purger.Plan(keep), ReadOnly: true}, nil
	}
	p, err := a.Purger.Purge(keep)
	d := operate.Done{Result: p, ReadOnly: err == nil && !p.Done, What: "purge the log of " + a.self.Name}
	if p.Done {
		d.What += fmt.Sprintf(" up to entry %d, %d bytes", p.UpTo, p.Bytes)
	}
	return d, err
}
