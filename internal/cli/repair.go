package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
)

// settingsFlags are the flags of "quorate cluster set".
type settingsFlags struct{ durability, reseed, errant, retainMax, peerSecurity, router, events string }

func (f *settingsFlags) add(cmd *cobra.Command) {
	wordFlag(cmd, &f.durability, "durability", "what an OK waits for, a `policy`: majority, all, site-majority", cluster.DurabilityMajority, cluster.DurabilityAll, cluster.DurabilitySiteMajority)
	wordFlag(cmd, &f.reseed, "reseed", "what happens to a node that lost its data directory: `policy` auto or manual", cluster.ReseedAuto, cluster.ReseedManual)
	wordFlag(cmd, &f.errant, "errant", "what happens to an errant node: `policy` keep or rebuild", cluster.ErrantKeep, cluster.ErrantRebuild)
	wordFlag(cmd, &f.peerSecurity, "peer-security", "protect connections between agents: `step` both, then require", cluster.PeersBoth, cluster.PeersRequire)
	wordFlag(cmd, &f.router, "router", "keep the metadata that MySQL Router reads: on or off", cluster.OnOff(true), cluster.OnOff(false))
	wordFlag(cmd, &f.events, "events", "run the events of the server's scheduler on the primary: on or off", cluster.OnOff(true), cluster.OnOff(false))
	cmd.Flags().StringVar(&f.retainMax, "retain-max", "", "keep the log for a node that is away up to this `size`, or off")
}

// change returns what the flags ask for.
func (f *settingsFlags) change() (c cluster.SettingsChange, err error) {
	if *f == (settingsFlags{}) {
		return c, usage(errors.New("nothing to set: --durability, --reseed, --errant, --retain-max, --peer-security, --router or --events is missing"))
	}
	if f.durability != "" {
		c.Durability = new(cluster.Durability(f.durability))
	}
	if f.reseed != "" {
		c.Reseed = new(cluster.Reseed(f.reseed))
	}
	if f.errant != "" {
		c.Errant = new(cluster.ErrantPolicy(f.errant))
	}
	if f.peerSecurity != "" {
		c.PeerSecurity = new(cluster.PeerSecurity(f.peerSecurity))
	}
	if f.router != "" {
		c.MySQLRouter = new(f.router == cluster.OnOff(true))
	}
	if f.events != "" {
		c.EventsOff = new(f.events == cluster.OnOff(false))
	}
	if f.retainMax != "" {
		c.RetainBytesMax = new(int64)
		if f.retainMax != "off" {
			size, bad := config.ParseBytes(f.retainMax)
			if bad != nil {
				bad = fmt.Errorf("--retain-max: %w, or off", bad)
			}
			*c.RetainBytesMax, err = int64(size), errors.Join(err, bad)
		}
	}
	if err != nil {
		return c, usage(err)
	}
	return c, nil
}

// sourceFlag takes the name of a learner's source, or none.
func sourceFlag(cmd *cobra.Command, source *string, applied *bool) {
	cmd.Flags().StringVar(source, "source", "", "the `node` that feeds a learner in place of the leader, or none")
	cmd.Flags().BoolVar(applied, "source-applied", false, "feed it only what the source's mysqld has applied")
}

// unlessNone returns the value of a flag; "" for the word none, which removes the setting.
func unlessNone(text string) string {
	if text == "none" {
		return ""
	}
	return text
}
