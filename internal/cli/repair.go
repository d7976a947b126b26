package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
)

// settingsFlags are the flags of "quorate cluster set".
type settingsFlags struct{ durability, reseed, errant, retainMax, peerSecurity, router, events string }

func (f *settingsFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.durability, "durability", "", "what an OK waits for, a `policy`: majority, all, site-majority")
	cmd.Flags().StringVar(&f.reseed, "reseed", "", "what happens to a node that lost its data directory: `policy` auto or manual")
	cmd.Flags().StringVar(&f.errant, "errant", "", "what happens to an errant node: `policy` keep or rebuild")
	cmd.Flags().StringVar(&f.peerSecurity, "peer-security", "", "protect connections between agents: `step` both, then require")
	cmd.Flags().StringVar(&f.router, "router", "", "keep the metadata that MySQL Router reads: on or off")
	cmd.Flags().StringVar(&f.events, "events", "", "run the events of the server's scheduler on the primary: on or off")
	cmd.Flags().StringVar(&f.retainMax, "retain-max", "", "keep the log for a node that is away up to this `size`, or off")
}

// change returns what the flags ask for.
func (f *settingsFlags) change() (c cluster.SettingsChange, err error) {
	if *f == (settingsFlags{}) {
		return c, usage(errors.New("nothing to set: --durability, --reseed, --errant, --retain-max, --peer-security, --router or --events is missing"))
	}
	if f.durability != "" {
		c.Durability = new(cluster.Durability(f.durability))
		err = oneOf("durability", f.durability, cluster.DurabilityMajority, cluster.DurabilityAll, cluster.DurabilitySiteMajority)
	}
	if f.reseed != "" {
		c.Reseed = new(cluster.Reseed(f.reseed))
		err = errors.Join(err, oneOf("reseed", f.reseed, cluster.ReseedAuto, cluster.ReseedManual))
	}
	if f.errant != "" {
		c.Errant = new(cluster.ErrantPolicy(f.errant))
		err = errors.Join(err, oneOf("errant", f.errant, cluster.ErrantKeep, cluster.ErrantRebuild))
	}
	if f.peerSecurity != "" {
		c.PeerSecurity = new(cluster.PeerSecurity(f.peerSecurity))
		err = errors.Join(err, oneOf("peer-security", f.peerSecurity, cluster.PeersBoth, cluster.PeersRequire))
	}
	if f.router != "" {
		c.MySQLRouter = new(f.router == cluster.OnOff(true))
		err = errors.Join(err, oneOf("router", f.router, cluster.OnOff(true), cluster.OnOff(false)))
	}
	if f.events != "" {
		c.EventsOff = new(f.events == cluster.OnOff(false))
		err = errors.Join(err, oneOf("events", f.events, cluster.OnOff(true), cluster.OnOff(false)))
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

// oneOf refuses a value that is none of those that there are.
func oneOf[T ~string](name, value string, values ...T) error {
	if slices.Contains(values, T(value)) {
		return nil
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return fmt.Errorf("--%s must be one of %s, not %q", name, strings.Join(texts, ", "), value)
}

// sourceFlag takes the name of a learner's source, or none.
func sourceFlag(cmd *cobra.Command, source *string, applied *bool) {
	cmd.Flags().StringVar(source, "source", "", "the `node` that feeds a learner in place of the leader, or none")
	cmd.Flags().BoolVar(applied, "source-applied", false, "feed it only what the source's mysqld has applied")
}

// unlessNone is what a flag sets for which none takes back what was set.
func unlessNone(text string) string {
	if text == "none" {
		return ""
	}
	return text
}
