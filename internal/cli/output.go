package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// group makes a command that has subcommands, and does nothing itself.
func group(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.Args, cmd.RunE = noArgs, showHelp
	cmd.AddCommand(children...)
	return cmd
}

// show prints the result of a command: v for programs, or text for people.
func show(out io.Writer, asJSON bool, v any, text string) error {
	if asJSON {
		return printJSON(out, v)
	}
	return printText(out, text)
}

// printJSON prints a document for programs.
func printJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

func printText(out io.Writer, text string) error {
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// table prints rows in columns, below a head whose cells are separated by tabs; "" = no head.
func table(head string, rows [][]string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	if head != "" {
		fmt.Fprintln(w, head)
	}
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush() // it writes to memory
	return text.String()
}
