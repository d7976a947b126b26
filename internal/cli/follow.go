package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
)

// followWait bounds the wait for the answer to a request that looks at a source.
const followWait = 40 * time.Second

// followOptions is what the command line says.
type followOptions struct {
	controlOptions
	args cluster.FollowRequest
	stop bool
	tls  string
}

func newFollowCommand() *cobra.Command {
	o := followOptions{controlOptions: controlOptions{timeout: followWait}}
	cmd := &cobra.Command{
		Use:   "follow [SOURCE --user USER ...] | follow --stop",
		Short: "Follow a running MySQL server until the cutover",
		Long: `Lets the cluster follow a running MySQL server that is not part of it (the source), by GTID,
until "quorate cutover". The primary reads the source's binlog as a replica does, and writes
each transaction with its original GTID: it is committed as a client's is. Older data must
be here already: begin the cluster with a copy of the source ("quorate adopt").

Meanwhile clients can read here, and cannot write. Accounts with CONNECTION_ADMIN still can,
and must not.

SOURCE is a host, or host:port. --user is an account there, with these privileges:

  REPLICATION SLAVE
  for the cutover: XA_RECOVER_ADMIN, and SELECT on performance_schema.*
  if the cutover is to close the source: SYSTEM_VARIABLES_ADMIN and
  CONNECTION_ADMIN

--password-file has its password. The file has the same path on every node. The agent must
be able to read it, and others must not. --ca-file, also on every node, has the CA of the
source's certificate, which is then checked.

--check only looks, and changes nothing. Without --check the same is looked at first, and
nothing is done if something fails. --force follows even if the cluster has transactions
that the source lacks.

Without SOURCE the command shows how far the primary is. --stop ends the following: clients
can write here, and nothing more comes from the source.

Exit codes: "quorate help exit-codes"; 1 also if a check fails.`,
		Example: `  quorate follow db0 --user rep --password-file /etc/quorate/db0 --check
  quorate follow db0:3307 --user rep --password-file /etc/quorate/db0
  quorate follow
  quorate follow --stop`,
		Args: atMostOneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.stop && o.args.Check:
				return usage(errors.New("--check does not go with --stop, which would end the following"))
			case len(args) == 0 && o.stop:
				return o.change(cmd.Context(), cmd.OutOrStdout(), "follow.stop", struct{}{})
			case len(args) == 0 && (o.args.User != "" || o.args.PasswordFile != "" || o.args.Check || o.args.Force):
				return usage(errors.New("SOURCE is missing: the host of the server to follow"))
			case len(args) == 0:
				return o.show(cmd.Context(), cmd.OutOrStdout())
			case o.stop:
				return usage(errors.New("--stop takes no SOURCE"))
			}
			if err := o.source(args[0]); err != nil {
				return usage(err)
			}
			return o.start(cmd.Context(), cmd.OutOrStdout(), "follow.start", o.args)
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&o.args.User, "user", "", "the `account` at the source")
	cmd.Flags().StringVar(&o.args.PasswordFile, "password-file", "", "the `file` on each node with its password")
	cmd.Flags().StringVar(&o.args.CAFile, "ca-file", "", "the `file` on each node with the CA of the source's certificate")
	cmd.Flags().StringVar(&o.tls, "tls", "required", "required, or off: how the connection is protected")
	cmd.Flags().BoolVar(&o.args.Check, "check", false, "only look, and change nothing")
	cmd.Flags().BoolVar(&o.args.Force, "force", false, "follow even if the cluster has transactions of its own")
	cmd.Flags().BoolVar(&o.stop, "stop", false, "end the following, without a cutover")
	return cmd
}

// source reads the source's settings from the command line.
func (o *followOptions) source(host string) (err error) {
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "3306")
	}
	o.args.Source = host
	switch o.tls {
	case "required":
	case "off":
		o.args.Plain = true
	default:
		return fmt.Errorf("--tls must be required or off, not %q", o.tls)
	}
	for _, path := range []*string{&o.args.PasswordFile, &o.args.CAFile} {
		if *path != "" {
			if *path, err = filepath.Abs(*path); err != nil {
				return err
			}
		}
	}
	return o.args.Follow.Check()
}

func (o *followOptions) start(ctx context.Context, out io.Writer, request string, args any) error {
	var result cluster.FollowResult
	if err := o.ask(ctx, request, args, &result); err != nil {
		return err
	}
	failed := cluster.Failed(result.Checks)
	text := checksText(result.Checks)
	switch {
	case !o.args.Check:
		text = changeText(result.ChangeResult) + text
	case len(failed) > 0:
		text += "\nit cannot be followed as it is\n"
	default:
		text += "\nit can be followed: run the same command without --check\n"
	}
	if !o.args.Check {
		return o.print(out, result, false, nil, text)
	}
	err := show(out, o.asJSON, result, text)
	if err == nil && len(failed) > 0 {
		err = &exitError{code: exitFailure}
	}
	return err
}

// checksText shows what was found: a line for each subject, and what to do below it.
func checksText(checks []cluster.Check) string {
	var rows [][]string
	for _, c := range checks {
		rows = append(rows, []string{string(c.State), c.Subject, oneLine(c.Found)})
		if c.Do != "" {
			rows = append(rows, []string{"", "", "-> " + oneLine(c.Do)})
		}
	}
	return table("", rows)
}

func (o *followOptions) show(ctx context.Context, out io.Writer) error {
	var s cluster.FollowStatus
	if err := o.ask(ctx, "follow.show", struct{}{}, &s); err != nil {
		return err
	}
	if o.asJSON {
		return printJSON(out, s)
	}
	if s.Follow == nil {
		return printText(out, "the cluster follows nobody\n")
	}
	text := fmt.Sprintf("the cluster follows %s, since %s, by %s\nnode %s %s\n%d transactions written since it began there\n",
		oneLine(s.Follow.String()), s.Follow.Since.UTC().Format(time.DateTime), oneLine(s.Follow.By), s.Node, oneLine(s.String()), s.Written)
	if s.Closing != nil {
		text += fmt.Sprintf("a cutover since %s, by %s, has closed the source, or is about to\n", s.Closing.Since.UTC().Format(time.DateTime), oneLine(s.Closing.By))
		if s.Closing.CalledOff && s.Closing.Left != "" {
			text += fmt.Sprintf("it is called off, and the source is left closed: %s\nopen it there, or go on: quorate cutover --source-closed\n", oneLine(s.Closing.Left))
		} else if s.Closing.CalledOff {
			text += "it is called off, and the source is about to be opened again\n"
		} else {
			text += "it is not called off: do not open the source by hand, as the cluster may still take over\n"
		}
		if s.OpenError != "" && s.Closing.Left == "" {
			text += fmt.Sprintf("the source is still not open again: %s\n", oneLine(s.OpenError))
		}
	}
	if s.LeftOut > 0 {
		text += fmt.Sprintf("%d statements were left out, because they grant what is withheld here: see the agent's log\n", s.LeftOut)
	}
	return printText(out, text)
}

func newCutoverCommand() *cobra.Command {
	o := controlOptions{timeout: actionTimeout}
	var args cluster.CutoverRequest
	var verify string
	cmd := &cobra.Command{
		Use:   "cutover [--source-closed] [--verify HOW] [--within TIME]",
		Short: "Go on in place of the server that is followed",
		Long: `Lets the cluster take the place of the server that it follows. The source is closed for
writes (super_read_only), the cluster waits until it has all that the source has, and then
clients can write to the cluster. The command prints for how long nobody could write.

If that takes longer than --within, or if anything is in doubt, the cutover is called off:
the source is opened again, and the cluster goes on following. If the account must not close
the source, close it yourself and use --source-closed. Then you must also open it again
yourself.

--verify compares all tables before clients can write: "rows" compares the number of rows,
"checksum" uses CHECKSUM TABLE. Nobody can write until that is done. The account needs
SELECT on the tables.

If the node that makes the cutover dies, the next primary calls the cutover off, and opens
the source again. Then run the command again.

After the cutover the source stays closed, also if it restarts, until somebody opens it. If
that could not be made to last (SET PERSIST), the command says so. Nothing goes back to the
source: stop it, and keep it for as long as you like.

Exit code 0: it was done, now or before. 1: it was not done. 2: wrong usage. 3: there is no
leader. 4: it is not known, or the source may have stayed closed: run the command again, or
see "quorate status", before you open the source.`,
		Example: `  quorate cutover
  quorate cutover --verify rows --within 1m
  quorate cutover --source-closed`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			args.Verify = cluster.Verify(verify)
			var done cluster.Cutover
			if err := o.ask(cmd.Context(), "cutover", args, &done); err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), done, false, nil, cutoverText(done))
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&args.SourceClosed, "source-closed", false, "confirm that the source was closed for writes by hand")
	cmd.Flags().BoolVar(&args.Force, "force", false, "cut over even if the cluster has transactions that the source lacks")
	wordFlag(cmd, &verify, "verify", "compare tables first: `how`, rows or checksum", cluster.VerifyRows, cluster.VerifyChecksum)
	durationFlag(cmd, &args.Within, "within", cluster.CutoverWithinDefault, "how long writes may stand before it is called off")
	return cmd
}

func cutoverText(c cluster.Cutover) string {
	if c.Already {
		return fmt.Sprintf("it was done before, at %s: the cluster goes on in place of %s, and clients write to %s.\n", units.Time(c.At), oneLine(c.Source), c.Node)
	}
	text := fmt.Sprintf("the cluster goes on in place of %s: clients write to %s. Writes stood for %.1f s", oneLine(c.Source), cmp.Or(c.Node, "its primary"), c.Seconds)
	if c.Tables > 0 {
		text += fmt.Sprintf("; %d tables were compared", c.Tables)
	}
	text += ".\n"
	if c.Reopens != "" {
		text += fmt.Sprintf("The source takes writes once it restarts (%s): stop it now\n", oneLine(c.Reopens))
	}
	if c.LeftOut > 0 {
		text += fmt.Sprintf("%d statements were left out, because they grant what is withheld here: see the agent's log\n", c.LeftOut)
	}
	return text
}
