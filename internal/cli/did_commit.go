package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// didCommitWait bounds the wait for the answer: the agent may read a large part of its
// log, for a minute at most, and then the leader may do the same.
const didCommitWait = 130 * time.Second

func newDidCommitCommand() *cobra.Command {
	o := controlOptions{timeout: didCommitWait}
	var token string
	cmd := &cobra.Command{
		Use:   "did-commit GTID | --session-token GTID",
		Short: "Say whether a transaction was committed",
		Long: `Says whether a transaction was committed, for a client that got no answer to its COMMIT. You
can ask any node's agent, on its own host. The agent asks a majority first, so it knows
everything that is committed anywhere.

--session-token is for a client whose connection broke during COMMIT. Such a client does not
know the GTID of that transaction. But with session_track_gtids=OWN_GTID the server sent the
GTID of each earlier transaction with its OK. The token is the last GTID that the client
got. The answer says whether that session committed anything after it, and what.

Without --session-token, GTID is that of the transaction itself, if you know it from
elsewhere. If the transaction got no OK, its server may have given the same GTID to a later
one. So compare entry, epoch and connection in the answer.

Exit code 0: it is committed. 1: it is not, and never will be; but its server may give the
same GTID to a later transaction. 2: wrong usage. 3: not known, because there is no
majority, nobody answers, the session is still there, or the token or the GTID is not of
this cluster's own servers. That holds for a source or a site that is followed: ask there.`,
		Example: `  quorate did-commit 3e11fa47-71ca-11e1-9e33-c80aa9429562:23
  quorate did-commit --json --session-token \
      3e11fa47-71ca-11e1-9e33-c80aa9429562:22`,
		Args: atMostOneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			request := cluster.DidCommitRequest{SessionToken: token}
			if len(args) == 1 {
				request.GTID = args[0]
			}
			if (request.GTID == "") == (token == "") {
				return usage(errors.New("name one GTID: the transaction's, or with --session-token an earlier one of its session"))
			}
			if text := request.GTID + token; !isGTID(text) {
				return usage(fmt.Errorf("%q is no GTID, such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:23", text))
			}
			return o.didCommit(cmd.Context(), cmd.OutOrStdout(), request)
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&token, "session-token", "", "the last `GTID` that the session got with an OK")
	return cmd
}

func isGTID(text string) bool {
	_, err := gtid.ParseGTID(text)
	return err == nil
}

func (o *controlOptions) didCommit(ctx context.Context, out io.Writer, r cluster.DidCommitRequest) error {
	var answer cluster.DidCommit
	if err := o.ask(ctx, "did-commit", r, &answer); err != nil {
		if e, ok := errors.AsType[*exitError](err); ok && e.code == exitUsage {
			return err
		}
		// Exit code 1 means "not committed": an error must not look like that.
		return &exitError{exitUnknown, err}
	}
	if err := printDidCommit(out, r, answer, o.asJSON); err != nil {
		return &exitError{exitUnknown, err}
	}
	switch answer.Outcome {
	case cluster.OutcomeCommitted:
		return nil
	case cluster.OutcomeNotCommitted:
		return &exitError{code: exitFailure}
	}
	return &exitError{code: exitUnknown}
}

func printDidCommit(out io.Writer, r cluster.DidCommitRequest, answer cluster.DidCommit, asJSON bool) error {
	word := "not known"
	switch {
	case answer.Outcome == cluster.OutcomeCommitted:
		word = "committed"
	case answer.Outcome == cluster.OutcomeNotCommitted && r.GTID != "": // the GTID may be used again
		word = "not committed"
	case answer.Outcome == cluster.OutcomeNotCommitted:
		word = "not committed, and never will be"
	}
	return show(out, asJSON, answer, fmt.Sprintf("%s: %s\n", word, oneLine(answer.Reason)))
}
