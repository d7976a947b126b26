package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/lab/netlab"
)

// pingsShown is how many echoes each printed figure is computed from.
const pingsShown = 100

func networksCommand() *cobra.Command {
	var measure bool
	cmd := &cobra.Command{
		Use:   "networks [NAME...]",
		Short: "List the networks; with --measure, bring each up and measure it",
		Long: `List the networks that systems are deployed on, and the round trip times that they are configured to.

With --measure each is brought up, alone: the round trip of an ICMP echo on the idle network, then the most that it
carries from a to b, with what that costs. It needs root and a few seconds for each.`,
		Example: "  quorate-lab networks\n  quorate-lab networks --measure two-city",
		RunE: func(cmd *cobra.Command, args []string) error {
			topologies, err := choose(args)
			if err != nil {
				return err
			}
			if !measure {
				return list(cmd.OutOrStdout(), topologies)
			}
			for i, t := range topologies {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				if err := measureNetwork(cmd.Context(), cmd.OutOrStdout(), t); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&measure, "measure", false, "bring each up, measure round trips and the most it carries")
	return cmd
}

func choose(names []string) ([]netlab.Topology, error) {
	if len(names) == 0 {
		return netlab.Presets(), nil
	}
	var chosen []netlab.Topology
	for _, name := range names {
		t, err := netlab.Preset(name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, t)
	}
	return chosen, nil
}

// shownPairs are the links in the table: those between the sites, and the client's.
func shownPairs() []netlab.Pair {
	return []netlab.Pair{{From: "a", To: "b"}, {From: "a", To: "c"}, {From: "b", To: "c"}, {From: "b", To: "d"}, {From: netlab.Client, To: "a"}}
}

func list(w io.Writer, topologies []netlab.Topology) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "network\tmade of\t")
	for _, p := range shownPairs() {
		fmt.Fprintf(table, "%v\t", p)
	}
	fmt.Fprintln(table, "what")
	for _, t := range topologies {
		fmt.Fprintf(table, "%s\t%v\t", t.Name, t.Kind)
		for _, p := range shownPairs() {
			fmt.Fprintf(table, "%v\t", t.RTT(p.From, p.To))
		}
		fmt.Fprintln(table, t.Description)
	}
	return table.Flush()
}

func measureNetwork(ctx context.Context, w io.Writer, t netlab.Topology) (err error) {
	network, err := netlab.New(t, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := network.Up(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	fmt.Fprintf(w, "%s: %s\n", t.Name, t.Description)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "  round trip\tconfigured\tmin\tp50\tp99\tmax\t")
	for _, p := range shownPairs() {
		rtt, err := network.MeasureRTT(ctx, p.From, p.To, pingsShown)
		if err != nil {
			return err
		}
		printRTT(table, p.String(), rtt)
	}
	ceiling, err := network.Ceiling(ctx)
	if err != nil {
		return err
	}
	printRTT(table, "a-b, flooded", ceiling.Packets.RTT)
	printRTT(table, "a-b, one stream", ceiling.Bytes.RTT)
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "  carries from a to b %.0f packets/s (%s), or %.0f MB/s in one stream (%s)\n",
		ceiling.Packets.PerSecond, used(t, ceiling.Packets), ceiling.Bytes.PerSecond/1e6, used(t, ceiling.Bytes))
	return nil
}

func used(t netlab.Topology, l netlab.Load) string {
	if t.Kind == netlab.Veth {
		return "no switch"
	}
	return fmt.Sprintf("%.0f %% of a processor in the switch", 100*l.Processors)
}

func printRTT(w io.Writer, name string, r netlab.RTT) {
	round := func(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
	fmt.Fprintf(w, "  %s\t%v\t%v\t%v\t%v\t%v\t\n", name, r.Configured, round(r.Min), round(r.P50), round(r.P99), round(r.Max))
}
