package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
)

// siteWait bounds the wait for an answer for which the agent must ask the other site.
const siteWait = 40 * time.Second

func newSiteCommand() *cobra.Command {
	o := controlOptions{timeout: siteWait}
	cmd := &cobra.Command{
		Use:   "site",
		Short: "Two clusters, of which one follows the other",
		Long: `Shows how this cluster stands to another one, which is another site: which of the two takes
writes, which follows, how far it is behind, and what the other site says.

A site follows the readers' ports of the other one. It gets only what is committed there,
and nothing that could be rolled back. Clients cannot write to a site that follows. That
ends with "site switch", which loses nothing, or with "site promote", after a disaster.

Exit codes: "quorate help exit-codes".`,
		Example: `  quorate site
  quorate site follow --check
  quorate site switch
  quorate site promote`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s cluster.SiteStatus
			if err := o.ask(cmd.Context(), "site.show", struct{}{}, &s); err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), o.asJSON, s, siteText(s))
		},
	}
	o.flags(cmd)
	cmd.AddCommand(newSiteFollowCommand(), newSiteSwitchCommand(), newSitePromoteCommand(), newSiteForgetCommand())
	return cmd
}

func siteText(s cluster.SiteStatus) string {
	text := fmt.Sprintf("site %s (this one) ", oneLine(s.Site))
	switch {
	case s.Follow == nil:
		text += "takes writes, and follows nobody\n"
	case s.Follow.Token != "":
		text += fmt.Sprintf("is closed for writes, until site %s takes over or gives up, since %s, by %s\n", oneLine(s.Follow.Site), s.Follow.Since.UTC().Format(time.DateTime), oneLine(s.Follow.By))
	default:
		text += fmt.Sprintf("follows %s, since %s, by %s\n", oneLine(s.Follow.String()), s.Follow.Since.UTC().Format(time.DateTime), oneLine(s.Follow.By))
		text += fmt.Sprintf("  node %s %s\n", s.Node, oneLine(s.FollowStatus.String()))
	}
	switch {
	case s.Other != nil && s.Other.Follows == "":
		text += fmt.Sprintf("site %s takes writes, and follows nobody (node %s)\n", oneLine(s.Other.Site), oneLine(s.Other.Node))
	case s.Other != nil && !s.Other.Closed:
		text += fmt.Sprintf("site %s IS ABOUT TO CLOSE for %s, and may take writes (node %s)\n", oneLine(s.Other.Site), oneLine(s.Other.Follows), oneLine(s.Other.Node))
	case s.Other != nil && s.Other.Token != "":
		text += fmt.Sprintf("site %s is closed for writes, until %s takes over or gives up (node %s)\n", oneLine(s.Other.Site), oneLine(s.Other.Follows), oneLine(s.Other.Node))
	case s.Other != nil:
		text += fmt.Sprintf("site %s is closed for writes, and follows %s (node %s)\n", oneLine(s.Other.Site), oneLine(s.Other.Follows), oneLine(s.Other.Node))
	case s.OtherError != "":
		text += "the other site does not answer: " + oneLine(s.OtherError) + "\n"
	}
	if s.Fence {
		text += "the other site was not closed when this one was promoted: it MAY TAKE WRITES until it answers\n"
	}
	if s.FenceError != "" {
		text += "  it is not closed yet: " + oneLine(s.FenceError) + "\n"
	}
	return text
}

func newSiteFollowCommand() *cobra.Command {
	o := followOptions{controlOptions: controlOptions{timeout: followWait}}
	cmd := &cobra.Command{
		Use:   "follow [--check] [--force]",
		Short: "Follow the other site of the configuration",
		Long: `Lets this cluster follow the other site, which [site] of the configuration names. If the
node that it follows fails, it goes on at another node there. From then on clients cannot
write to this cluster.

--check only looks, and changes nothing. --force follows even if this cluster has
transactions of its own (FLUSH STATUS makes one, for example). They are recorded as
accepted: be certain that the data that they changed are the same at both sites.

Exit codes: "quorate help exit-codes"; 1 also if a check fails.`,
		Example: `  quorate site follow --check
  quorate site follow`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.start(cmd.Context(), cmd.OutOrStdout(), "site.follow", cluster.SiteFollowRequest{Check: o.args.Check, Force: o.args.Force})
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.args.Check, "check", false, "only look, and change nothing")
	cmd.Flags().BoolVar(&o.args.Force, "force", false, "follow even if the cluster has transactions of its own")
	return cmd
}

func newSiteForgetCommand() *cobra.Command {
	o := controlOptions{timeout: actionTimeout}
	cmd := &cobra.Command{
		Use:   "forget",
		Short: "Forget the other site, which will not come back",
		Long: `Lets this cluster, which was promoted, forget the other site: if that one comes back, it is
not closed any more. Be certain that it does not come back, or that no client can reach it.`,
		Example: `  quorate site forget`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.change(cmd.Context(), cmd.OutOrStdout(), "site.forget", struct{}{})
		},
	}
	o.flags(cmd)
	return cmd
}

func newSiteSwitchCommand() *cobra.Command {
	o := controlOptions{timeout: actionTimeout}
	var args cluster.SiteSwitchRequest
	cmd := &cobra.Command{
		Use:   "switch [--within TIME] [--force]",
		Short: "Go on in place of the other site, in order",
		Long: `Lets this site, which follows, take the place of the other one, in order. The other site is
closed for writes. Once this site has all that the other one has, clients can write here,
and the other site follows this one. Nothing is lost. The command prints for how long nobody
could write.

If that takes longer than --within, or if anything is in doubt before the end, the switch is
called off: the other site is opened again, and this one goes on following.

It is refused if this site has a later series of MySQL, because the other one may then not
be able to follow. --force switches all the same.

Exit code 0: it was done, now or before. 1: it was not done. 2: wrong usage. 3: there is no
leader. 4: it is not known: run the command again, or see "quorate site" at both sites.`,
		Example: `  quorate site switch
  quorate site switch --within 10s`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var done cluster.Cutover
			if err := o.ask(cmd.Context(), "site.switch", args, &done); err != nil {
				return err
			}
			text := fmt.Sprintf("this site goes on in place of site %s, which follows it: clients write to %s. Writes stood for %.1f s.\n", oneLine(done.Source), done.Node, done.Seconds)
			if done.Already {
				text = fmt.Sprintf("it was done before: this site has taken over from site %s, and clients write to %s. To go back, switch at that site.\n", oneLine(done.Source), done.Node)
			}
			return o.print(cmd.OutOrStdout(), done, false, nil, text)
		},
	}
	o.flags(cmd)
	durationFlag(cmd, &args.Within, "within", cluster.CutoverWithinDefault, "how long writes may stand before it is called off")
	cmd.Flags().BoolVar(&args.Force, "force", false, "even if this site has a later series of MySQL")
	return cmd
}

// sitePromote is `quorate site promote`.
type sitePromote struct {
	controlOptions
	args cluster.SitePromoteRequest
}

func newSitePromoteCommand() *cobra.Command {
	o := sitePromote{controlOptions: controlOptions{timeout: actionTimeout}}
	cmd := &cobra.Command{
		Use:   "promote [--yes] [--force]",
		Short: "Go on without the other site, after a disaster",
		Long: `Lets this site, which follows, go on without the other one. The command says which GTIDs are
lost, as far as that is known. It asks, and then lets clients write here.

Be certain that the other site is gone, or cut off from all clients: only you can know that.
It is told to close once it answers again, and until then it may take writes.

If the other site answers now, and has a majority, nothing is done: "quorate site switch"
loses nothing. --force closes it first, and goes on with what is here. Use --force also if
it is not known whether the other site is there, for example because it refuses the
password.

Exit code 0: it was done, now or before. 1: it was not done. 2: wrong usage. 3: there is no
leader. 4: it is not known: see "quorate site", or run the command again.`,
		Example: `  quorate site promote
  quorate site promote --yes --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	o.flags(cmd)
	yesFlag(cmd, &o.args.Yes)
	cmd.Flags().BoolVar(&o.args.Force, "force", false, "also if the other site answers: it is closed first")
	return cmd
}

func (o *sitePromote) run(ctx context.Context, in io.Reader, out io.Writer) error {
	if !o.args.Yes {
		if err := o.mayAsk(in, out); err != nil {
			return err
		}
		var plan cluster.SitePromotion
		if err := o.ask(ctx, "site.promote", o.args, &plan); err != nil {
			return err
		}
		err := printText(out, promotionText(plan))
		if plan.Done {
			return wasDone(err)
		}
		if err != nil {
			return err
		}
		if !confirm(ctx, in, out, "Is the other site gone, or to be closed, and is this one to take writes? [y/N] ") {
			return &exitError{exitFailure, errNotMeant}
		}
		o.args.Yes = true
	}
	var done cluster.SitePromotion
	if err := o.ask(ctx, "site.promote", o.args, &done); err != nil {
		return err
	}
	return o.print(out, done, false, nil, promotionText(done))
}

// promotionText says what a promotion would mean, or its result.
func promotionText(p cluster.SitePromotion) string {
	var text strings.Builder
	switch {
	case p.Already:
		fmt.Fprintf(&text, "it was done before: site %s has taken over from site %s, and clients write to %s.\n", oneLine(p.Site), oneLine(p.From), p.Node)
	case p.Done:
		fmt.Fprintf(&text, "site %s goes on without site %s: clients write to %s.\n", oneLine(p.Site), oneLine(p.From), p.Node)
	}
	fmt.Fprintf(&text, "here:  %s\n", oneLine(p.Executed))
	if p.Unheard != "" {
		fmt.Fprintf(&text, "       no majority of site %s answers: %s\n", oneLine(p.From), oneLine(p.Unheard))
	}
	switch {
	case p.LostCount == 0 && p.Heard.IsZero() && !p.Closed:
		fmt.Fprintf(&text, "lost:  not known: no node that is here has heard a majority of site %s\n", oneLine(p.From))
	case p.LostCount == 0:
		text.WriteString("lost:  nothing that is known\n")
	default:
		fmt.Fprintf(&text, "lost:  %d transactions: %s\n", p.LostCount, oneLine(p.Lost))
	}
	switch {
	case p.Closed:
		fmt.Fprintf(&text, "       site %s was closed before: that is all\n", oneLine(p.From))
	case p.Heard.IsZero() && p.LostCount > 0:
		text.WriteString("       this is what nodes of it have that answer: what else it has acknowledged is not known\n")
	case !p.Heard.IsZero():
		fmt.Fprintf(&text, "       site %s was heard last at %s: what it has acknowledged since is not known\n", oneLine(p.From), p.Heard.UTC().Format("2006-01-02 15:04:05.000"))
	}
	if p.Fence || p.Done && !p.Closed && !p.Already {
		fmt.Fprintf(&text, "site %s is told to close once it answers. Keep clients from it until then.\n", oneLine(p.From))
	}
	return text.String()
}
