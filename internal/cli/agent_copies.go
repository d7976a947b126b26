package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/backup/ship"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// copyLookEvery is how often the command looks whether an agent that sends nothing of a copy is alive. There is no
	// other bound: mysqld may copy its data for hours, and nothing is sent meanwhile.
	copyLookEvery = 30 * time.Second
	// copyLooksMax is how many such looks in a row find no sign of life before the copy is given up. A host may be too
	// busy to answer once.
	copyLooksMax = 4
)

// errCopyHangs is the error of a copy that was given up.
var errCopyHangs = fmt.Errorf("the agent hangs: for %s it has sent nothing of the copy, and not answered; see its log (journalctl -u quorate)",
	units.Duration(copyLooksMax*(copyLookEvery+statusTimeout)))

// agentCopies asks the agent of this host for copies. It implements ship.Agent.
type agentCopies struct {
	socket string
	// hangs is an error if the agent shows no sign of life. lookEvery is the pause before it is asked for again.
	hangs     func(ctx context.Context, socket string) error
	lookEvery time.Duration
	// stall is how long the data may stand still because the repository takes nothing.
	stall time.Duration
}

const (
	// copyStallMore is how much longer the data may stand still than the command that does not take them.
	copyStallMore = time.Minute
	// copyStallLog is how long the log may stand still: it is not read while a piece is stored, and that takes as long as it takes,
	// again and again if the store fails. Meanwhile the agent keeps one of its places for copies, and a large transaction that
	// is half sent, also on its disk.
	copyStallLog = 24 * time.Hour
	// copyStallNever lets the data stand still for as long as this process lives.
	copyStallNever time.Duration = math.MaxInt64
)

// agent returns the agent of this host. A command of the repository that stands still is killed after idle (0 = never), and not
// before: so the agent waits longer with the data.
func (p *backupPlace) agent(idle time.Duration) (agentCopies, error) {
	stall := idle + copyStallMore
	if idle == 0 {
		stall = copyStallNever
	}
	socket, err := p.control.controlSocket()
	return agentCopies{socket, hangs, copyLookEvery, stall}, err
}

// Data implements ship.Agent.
func (a agentCopies) Data(ctx context.Context) (io.ReadCloser, error) {
	return a.stream(ctx, cluster.StreamData, "{}", a.stall)
}

// Log implements ship.Agent.
func (a agentCopies) Log(ctx context.Context, first uint64) (io.ReadCloser, error) {
	return a.stream(ctx, cluster.StreamLog, fmt.Sprintf(`{"first":%d}`, first), copyStallLog)
}

func (a agentCopies) stream(ctx context.Context, name, args string, stall time.Duration) (io.ReadCloser, error) {
	if err := a.hangs(ctx, a.socket); err != nil {
		return nil, err
	}
	c := &watchedCopy{}
	c.ctx, c.end = context.WithCancelCause(ctx)
	c.watching.Go(func() { c.watch(a) })
	r, err := api.Stream(c.ctx, a.socket, control.Request{Name: name, By: os.Getenv("SUDO_USER"), Args: []byte(args)}, stall)
	if err == nil {
		c.body = r
		return c, nil
	}
	c.end(nil)
	c.watching.Wait()
	if e, ok := errors.AsType[*control.Error](err); ok {
		switch e.Code {
		case control.CodePurged:
			return nil, fmt.Errorf("%w: %w", ship.ErrGap, err)
		case control.CodeBehind:
			return nil, fmt.Errorf("%w: %w", ship.ErrBehind, err)
		}
		return nil, err
	}
	return nil, unanswered(c.why(err), a.socket)
}

// watchedCopy is a copy that ends with an error if the agent hangs.
type watchedCopy struct {
	body     io.ReadCloser
	ctx      context.Context
	end      context.CancelCauseFunc
	watching sync.WaitGroup
	read     atomic.Int64 // how many bytes
}

// watch ends the copy if the agent sends nothing and shows no sign of life.
func (c *watchedCopy) watch(a agentCopies) {
	read := int64(0)
	for silent := 0; silent < copyLooksMax; {
		if clock.Sleep(c.ctx, clock.Machine{}, a.lookEvery) != nil {
			return // the copy has ended
		}
		if now := c.read.Load(); now != read || a.hangs(c.ctx, a.socket) == nil {
			read, silent = now, 0
			continue
		}
		silent++
	}
	c.end(errCopyHangs)
}

// why is the reason for an error of the copy.
func (c *watchedCopy) why(err error) error {
	if cause := context.Cause(c.ctx); errors.Is(cause, errCopyHangs) {
		return cause
	}
	return err
}

// Read implements io.Reader.
func (c *watchedCopy) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	c.read.Add(int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		err = c.why(err)
	}
	return n, err
}

// Close implements io.Closer.
func (c *watchedCopy) Close() error {
	c.end(nil)
	c.watching.Wait()
	return c.body.Close()
}
