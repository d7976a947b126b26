package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// yesFlag adds --yes to a command that asks first.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}

// mayAsk returns an error if there is no person to answer a question. A script
// must say --yes.
func (o *controlOptions) mayAsk(in io.Reader, out io.Writer) error {
	if o.asJSON || !isTerminal(in) || !isTerminal(out) {
		return usage(errors.New("this is not a terminal, so nobody can confirm it: use --yes"))
	}
	return nil
}

// errNotMeant ends a command whose question was not answered with yes.
var errNotMeant = errors.New("nothing was done")

// confirm asks a question that only "y" or "yes" answers.
func confirm(ctx context.Context, in io.Reader, out io.Writer, question string) bool {
	if _, err := io.WriteString(out, question); err != nil {
		return false
	}
	answer := strings.ToLower(readAnswer(ctx, in))
	return answer == "y" || answer == "yes"
}

// readAnswer reads a person's answer; "" if a signal comes first. A read of a
// terminal cannot be cancelled: its goroutine ends with the process.
func readAnswer(ctx context.Context, in io.Reader) string {
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case a := <-answer:
		return a
	case <-ctx.Done():
		return ""
	}
}
