package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/agent"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
)

// recoverOptions is what the command line says.
type recoverOptions struct {
	path, accept          string
	force, dryRun, asJSON bool
	version               string
}

func newRecoverCommand(deps Deps) *cobra.Command {
	o := recoverOptions{version: deps.Version}
	cmd := &cobra.Command{
		Use:   "recover --force-new-cluster [--accept-loss none|GTIDS]",
		Short: "Go on with one node when a majority is gone for good",
		Long: `This command is for one case: a majority of the voters is gone for good, with their disks.
No remaining node can know what they had acknowledged. So a person decides that one
remaining node goes on alone: the node of this host. What only the lost nodes had is lost.

Stop this node's agent first. The agents of all other remaining nodes should run: the
command asks them what they have, and prints it, with the transactions that this node lacks.
It takes at least two seconds: it hears at the peer port whether nodes run that this node does
not know, or whether another node is being recovered. Then it refuses.

It refuses if a majority answers, whatever the answers are: then no recovery is needed, or
this node's data are the wrong ones. It refuses if another node has a newer log: recover on
that node. On a terminal it asks for the cluster's name.

--accept-loss names the transactions to give up, exactly as printed: "none", or a set of
GTIDs. It replaces the question. With it the node goes on even if another node has a newer
log, but never against a majority.

The log of this node is kept to its end, and everything in it counts as committed. This node
is then the only member. Former members that come back serve nothing, and say so: "quorate
node rebuild NODE", run here, takes each of them in again, with a new copy of the data.

Exit code 0: it was done, or with --dry-run: it could be done. 1: it failed. What was begun
is finished by the agent's next start, or by the same command. 2: it is refused.`,
		Example: `  quorate recover --force-new-cluster --config node.toml --dry-run
  quorate recover --force-new-cluster --config node.toml
  quorate recover --force-new-cluster --config node.toml --accept-loss none`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !o.force {
				return usage(errors.New("--force-new-cluster is missing: there is no other recovery"))
			}
			cfg, err := loadConfig(o.path)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), cfg, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	configFlag(cmd, &o.path)
	cmd.Flags().BoolVar(&o.force, "force-new-cluster", false, "make this node a cluster of its own")
	cmd.Flags().StringVar(&o.accept, "accept-loss", "", "the `transactions` to give up, exactly as printed: none, or GTIDs")
	cmd.Flags().BoolVarP(&o.dryRun, "dry-run", "n", false, "change nothing")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print what was found and done in JSON")
	return cmd
}

// recovered is what "quorate recover --json" prints.
type recovered struct {
	recovery.Verdict
	// Refused says why the recovery was not done, or could not be done; "" = it was done, or could be.
	Refused string            `json:"refused,omitempty"`
	DryRun  bool              `json:"dry_run"`
	Done    *cluster.Recovery `json:"done,omitempty"`
	Notes   []string          `json:"notes,omitempty"`
}

func (o *recoverOptions) run(ctx context.Context, cfg config.Config, in io.Reader, out, errOut io.Writer) (err error) {
	logger := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if interrupted, err := agent.RecoveryInterrupted(cfg); err != nil {
		return err
	} else if interrupted {
		return o.finish(cfg, out)
	}
	r, err := agent.OpenRecovery(cfg, logger, o.version)
	_, failed := errors.AsType[syscall.Errno](err)
	_, cannot := errors.AsType[*agent.StartError](err)
	switch {
	case failed || cannot:
		return err
	case err != nil:
		return &exitError{exitUsage, err}
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	v, err := r.Check(ctx)
	if err != nil {
		return err
	}
	result := recovered{Verdict: v, DryRun: o.dryRun, Notes: recoverNotes(v)}
	if result.Refused, err = v.Refusal(o.accept); err != nil {
		return usage(fmt.Errorf("--accept-loss: %w", err))
	}
	if !o.asJSON {
		if err := printText(out, recoverText(v)); err != nil {
			return err
		}
	}
	if result.Refused == "" && !o.dryRun {
		if result.Refused, err = o.confirm(ctx, r, v, in, out); err != nil {
			return err
		}
	}
	if result.Refused == "" && !o.dryRun {
		done, err := r.Do(whoAsks(), v)
		if err != nil {
			return err
		}
		result.Done = &done
	}
	return o.print(result, out)
}

// finish finishes a recovery that was interrupted.
func (o *recoverOptions) finish(cfg config.Config, out io.Writer) error {
	what := fmt.Sprintf("a recovery of node %s that was interrupted is finished: start its agent", cfg.Node)
	if o.dryRun {
		what = fmt.Sprintf("a recovery of node %s was interrupted: its agent finishes it when it starts, or this command without --dry-run", cfg.Node)
	} else if err := agent.FinishRecovery(cfg); err != nil {
		return err
	}
	shown := controlOptions{asJSON: o.asJSON}
	return shown.print(out, struct {
		Interrupted string `json:"interrupted"`
		DryRun      bool   `json:"dry_run"`
	}{what, o.dryRun}, o.dryRun, nil, what+"\n")
}

// judge finds which nodes answer and what they have. An *agent.Recovery implements it.
type judge interface {
	Check(ctx context.Context) (recovery.Verdict, error)
}

// confirm makes sure that the recovery is meant: by --accept-loss, or else by a question. It returns why
// the recovery is refused; "" = it is meant.
func (o *recoverOptions) confirm(ctx context.Context, r judge, v recovery.Verdict, in io.Reader, out io.Writer) (refused string, err error) {
	if o.accept != "" {
		return "", nil
	}
	if o.asJSON || !isTerminal(out) {
		return fmt.Sprintf("this is not a terminal, so nobody can confirm it: use --accept-loss %s", v.Loss()), nil
	}
	return ask(ctx, r, v, in, out)
}

// ask asks a person, who may take long to answer. So it judges again after the answer, and refuses if
// the situation has changed.
func ask(ctx context.Context, r judge, v recovery.Verdict, in io.Reader, out io.Writer) (refused string, err error) {
	fmt.Fprintf(out, "\nType the cluster's name to go on: ")
	if readAnswer(ctx, in) != v.Cluster {
		return "nothing was done", nil
	}
	now, err := r.Check(ctx)
	if err == nil && v.Changed(now) {
		refused = "the situation has changed since this was printed, nothing was done: look at it again"
	}
	return refused, err
}

func (o *recoverOptions) print(r recovered, out io.Writer) error {
	var err error
	switch {
	case o.asJSON && o.dryRun:
		err = printDryRun(out, r, r.Refused == "")
	case o.asJSON:
		err = printJSON(out, r)
	case r.Done != nil:
		_, err = io.WriteString(out, doneText(*r.Done))
	case r.Refused == "":
		_, err = fmt.Fprintf(out, "\nit could be done now, with --accept-loss %s\n", r.Loss())
	}
	if err != nil {
		err = fmt.Errorf("print result: %w", err)
		if r.Done != nil {
			err = wasDone(err)
		}
		return err
	}
	if r.Refused != "" {
		return &exitError{exitUsage, errors.New(r.Refused)}
	}
	return nil
}

// recoverText shows what was found.
func recoverText(v recovery.Verdict) string {
	var text strings.Builder
	fmt.Fprintf(&text, "cluster %s, to go on with node %s alone\n\n", v.Cluster, v.Survivor)
	row := func(name string, l recovery.Log, lacking string) []string {
		return []string{name, indexRange(l.First, l.Last), fmt.Sprint(l.Term), fmt.Sprint(l.Commit), cmp.Or(l.GTIDs, "-"), cmp.Or(lacking, "-")}
	}
	rows := [][]string{row(v.Survivor, v.Log, "")}
	for _, n := range v.Nodes {
		if n.Report != nil {
			rows = append(rows, row(n.Name, n.Report.Log, n.Lacking))
			continue
		}
		what := "unreachable"
		if n.Reachable {
			what = "answers, and does not say"
		}
		rows = append(rows, []string{n.Name, what + ": " + oneLine(n.Problem)})
	}
	text.WriteString(table("NODE\tLOG\tTERM\tCOMMITTED\tTRANSACTIONS\tNOT HERE", rows))
	if sayers := v.Sayers(); len(sayers) > 0 {
		fmt.Fprintf(&text, "\ntransactions of %s that node %s lacks: %s\n", strings.Join(sayers, ", "), v.Survivor, v.Loss())
	} else {
		text.WriteString("\nno other node says what it has\n")
	}
	if len(v.Unknown) > 0 {
		fmt.Fprintf(&text, "transactions that only %s had are lost; which ones is not known (entries after %d; some may have been acknowledged)\n",
			strings.Join(v.Unknown, ", "), v.Log.Last)
	}
	if len(v.Unknown) > 0 && v.Overridable() {
		fmt.Fprintf(&text, "make sure that these nodes are off: if one still runs, both sides take writes: %s\n",
			strings.Join(v.Unknown, ", "))
	}
	if n := v.Log.Last - min(v.Log.Last, v.Log.Commit); n > 0 {
		fmt.Fprintf(&text, "the last %d entries here are not known to be committed, and are kept: they may have been acknowledged\n", n)
	}
	text.WriteString(noteLines(recoverNotes(v)))
	for _, o := range v.Objections {
		fmt.Fprintf(&text, "against it: %s\n", oneLine(o.Text))
	}
	return text.String()
}

// recoverNotes are sentences about what a recovery would find.
func recoverNotes(v recovery.Verdict) []string {
	if v.Fenced == "" {
		return nil
	}
	return []string{fmt.Sprintf("node %s is %s: there is no primary after the recovery until \"quorate unfence %s\"", v.Survivor, v.Fenced, v.Survivor)}
}

// doneText says what was done, and what to do next.
func doneText(r cluster.Recovery) string {
	without := namesOf(r.Without)
	text := fmt.Sprintf("\nnode %s is cluster %s now, alone, since %s. Start its agent.\n", r.Node, r.Cluster, units.Time(r.At))
	if without != "" {
		text += fmt.Sprintf("Start no agent of %s while node %s is down: a majority of them would elect a primary of its own.\n"+
			"\"quorate node rebuild NODE\", here, takes each one in again, with a new copy of the data.\n", without, r.Node)
	}
	return text
}

func namesOf(members []cluster.Member) string {
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}
