package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/sys/metrics"
)

const (
	// answersTimeout bounds the wait until the clients of a deposed primary have their last
	// answers. It begins once no session waits in its mysqld any more.
	answersTimeout = 200 * time.Millisecond
	// answersPoll is how often mysqld is asked whether it has written them.
	answersPoll = 5 * time.Millisecond
)

// AwaitAnswers implements primary.Clients.
func (c clients) AwaitAnswers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answersTimeout)
	defer cancel()
	if err := c.router.AwaitAnswers(ctx); err != nil {
		c.logger.Warn("some clients did not read their answers in time", "error", err)
	}
	if err := c.awaitWritten(ctx); err != nil {
		c.logger.Warn("mysqld did not answer some clients in time", "error", err)
	}
}

// Settled implements primary.Host.
func (h host) Settled(term, number uint64, acknowledged int, took time.Duration) {
	h.logger.Info(fmt.Sprintf("settled: %d acknowledged, 0 killed", acknowledged), "epoch", term, "last", number,
		"took", took.Round(time.Millisecond))
}

// settleMetrics count since this agent began.
func (p provider) settleMetrics() []metrics.Sample {
	return []metrics.Sample{
		metrics.Of("quorate_settled_total", p.Duties.Kept()),
		metrics.Of("quorate_settle_kills_total", p.Duties.Killed()),
	}
}
