package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// helpColumns is how wide help is.
const helpColumns = 80

// fitHelp has the help of a command, and of those below it, fit into a terminal.
func fitHelp(cmd *cobra.Command) {
	cmd.Long = reflow(cmd.Long)
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages |", fmt.Sprintf(".FlagUsagesWrapped %d |", helpColumns)))
	for _, sub := range cmd.Commands() {
		fitHelp(sub)
	}
}

// reflow breaks the lines of paragraphs anew. What is indented stays as it is.
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
