package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/quorate/quorate/internal/api"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
	"github.com/quorate/quorate/internal/devcluster"
	"github.com/quorate/quorate/internal/ledger"
)

const (
	// wantedSwitchoverMs is what the write pause of a switchover should be at most,
	// in the middle.
	wantedSwitchoverMs = 200
	switchoverMaxPause = 5 * time.Second
	switchoverWait     = 20 * time.Second
)

// runSwitchover is part switchover: the primary moves in order, under load.
func (b *bench) runSwitchover(ctx context.Context) (err error) {
	c, err := b.newClusterOf(ctx, devcluster.Options{Dir: filepath.Join(b.dir, "s")}, ledger.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	kind := failure{killKind{"switchover", func(c *devcluster.Cluster, i int) error { return b.switchover(ctx, c, i) }, nil}, wantedSwitchoverMs}
	var series failureSeries
	verdict, err := b.underLoad(ctx, c, func(ctx context.Context, w *ledger.Workload) error {
		gaps, err := b.gaps(ctx, c, w, kind.killKind, b.opts.failures)
		if err == nil {
			series = newFailureSeries(kind, gaps)
		}
		return err
	})
	if err != nil {
		return err
	}
	series.Ledger = verdict
	b.result.Failures = append(b.result.Failures, series)
	return nil
}

// switchover moves the primary away from node i.
func (b *bench) switchover(ctx context.Context, c *devcluster.Cluster, i int) error {
	raw, err := json.Marshal(cluster.SwitchoverRequest{MaxPause: switchoverMaxPause, Wait: switchoverWait})
	if err != nil {
		return err
	}
	answer, err := api.Control(ctx, c.ControlSocket(i), control.Request{Name: "switchover", Args: raw})
	if err == nil {
		err = answer.Err()
	}
	var s cluster.Switchover
	if err == nil {
		err = json.Unmarshal(answer.Result, &s)
	}
	if err != nil {
		return fmt.Errorf("switchover: %w", err)
	}
	b.say("switchover from %s to %s, which its agent says took %.0f ms", s.From, s.To, s.PauseMs)
	return nil
}
