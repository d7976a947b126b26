package ownport

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
)

// About is the key, among the board's troubles, of trouble with the port.
const About = "port"

// Run keeps the kernel's windows up to date, until ctx ends. If it does not run in time, they end by themselves.
func (p *Port) Run(ctx context.Context, every time.Duration, b *board.Board, logger *slog.Logger) error {
	if !p.Fenced() {
		return nil
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for said := ""; ; {
		changed := b.Changes() // before the look, so that no change is missed
		trouble := ""
		if err := p.Refresh(); err != nil {
			trouble = fmt.Sprintf("clients cannot reach mysqld at %s, only the router: %v", b.Own().MysqldPort,
				strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		b.SetTrouble(About, trouble)
		if trouble != said {
			said = trouble
			if trouble != "" {
				logger.Warn("mysqld's own port: " + trouble)
			} else {
				logger.Info("mysqld's own port: clients reach it again")
			}
		}
		select {
		case <-changed:
		case <-p.wake:
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Await returns once the kernel lets nothing pass any more that may not pass now. A primary
// calls it before it gives up a lease: another node may be elected before the lease's time is
// over. A node that is promoted calls it before mysqld is opened: from then on the lease counts.
// If the kernel does not answer, Await takes as long as a window may be: longest.
func (p *Port) Await(longest time.Duration, spawn func(func()), logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := p.Told(ctx, spawn); err != nil {
		logger.Warn("mysqld's own port could not be closed: waiting until its windows are over", "error", err)
		<-ctx.Done()
	}
}
