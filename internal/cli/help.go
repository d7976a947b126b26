package cli

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// helpColumns is how wide help is.
const helpColumns = 80

// newHelpCommand is cobra's help command, except that an unknown command is an error.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		Long:  `Shows the help of a command.`,
		Example: `  quorate help switchover
  quorate help node set`,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = noArgs(found, rest)
			}
			if err != nil {
				return usage(err)
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

// describeCompletion gives cobra's completion command the texts that every command here has.
func describeCompletion(root *cobra.Command) {
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil {
		return // cobra makes no completion command for a program without commands
	}
	cmd.Short = "Print a script with which a shell completes quorate's commands"
	cmd.Example = `  quorate completion bash > /etc/bash_completion.d/quorate
  quorate completion zsh > "${fpath[1]}/_quorate"`
	cmd.Args, cmd.RunE = noArgs, showHelp
	for _, shell := range cmd.Commands() {
		shell.Short = "Print the script for " + shell.Name()
		shell.Example = "  quorate completion " + shell.Name()
		// Only Linux: cobra writes about macOS, too.
		shell.Long = regexp.MustCompile(`(?s)#### Linux:\n\n|#### macOS:\n\n[^\n]*\n\n`).ReplaceAllString(shell.Long, "")
	}
}

// fitHelp makes the help of a command, and of its subcommands, fit into a terminal.
func fitHelp(cmd *cobra.Command) {
	cmd.Long = reflow(cmd.Long)
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages |", fmt.Sprintf(".FlagUsagesWrapped %d |", helpColumns)))
	for _, sub := range cmd.Commands() {
		fitHelp(sub)
	}
}

// reflow breaks the lines of paragraphs again. Indented lines stay as they are.
func reflow(text string) string {
	var b strings.Builder
	column := 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, " ") {
			if column > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(line + "\n")
			column = 0
			continue
		}
		for word := range strings.FieldsSeq(line) {
			n := utf8.RuneCountInString(word)
			switch {
			case column == 0:
			case column+1+n > helpColumns:
				b.WriteByte('\n')
				column = 0
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += n
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
