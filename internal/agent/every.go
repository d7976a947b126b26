package agent

import (
	"context"
	"time"
)

// every calls f at intervals until ctx ends, or until f fails.
func every(ctx context.Context, interval time.Duration, f func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := f(); err != nil {
			return err
		}
	}
}
