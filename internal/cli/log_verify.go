package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/seglog"
)

func newLogVerifyCommand() *cobra.Command {
	var source logSource
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify [--config FILE | --dir DIR]",
		Short: "Check every byte of a node's log",
		Long: `Reads all of a node's log and checks it: checksums, chains, how the segments follow on each
other, that transactions are whole, the set of GTIDs at the beginning of each segment, and
the rules of epochs. It changes nothing, and the node may run or not.

Exit code 0: there is no damage. A torn tail is no damage: a crash leaves it after the last
fsync, it was never acknowledged, and the node's next start cuts it off. 1: there is damage,
or the log cannot be read. A line for each damage names segment, offset and entry. The node
does not take part with a damaged log until it is healed.`,
		Example: `  quorate log verify --config node.toml
  quorate log verify --dir /backup/log --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := source.open()
			if err != nil {
				return err
			}
			progress := &progressLine{out: cmd.ErrOrStderr(), verb: "verify"}
			found, err := in.Verify(cmd.Context(), progress.show())
			progress.clear()
			if err != nil {
				return err
			}
			return printVerified(cmd.OutOrStdout(), found, asJSON)
		},
	}
	source.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// verifyResult is what `quorate log verify --json` prints.
type verifyResult struct {
	Damaged      bool          `json:"damaged"`
	Segments     int           `json:"segments"`
	FirstIndex   uint64        `json:"first_index"`
	LastIndex    uint64        `json:"last_index"`
	Commit       uint64        `json:"commit"`
	Transactions uint64        `json:"transactions"`
	Bytes        int64         `json:"bytes"`
	Findings     []findingLine `json:"findings"`
	More         uint64        `json:"more_findings,omitempty"`
}

type findingLine struct {
	Segment string `json:"segment"`
	Offset  int64  `json:"offset"`
	Index   uint64 `json:"index,omitempty"`
	Torn    bool   `json:"torn"`
	Detail  string `json:"detail"`
}

func printVerified(out io.Writer, v *seglog.Verified, asJSON bool) error {
	result := verifyResult{
		Damaged: v.Damaged(), Segments: v.Segments, FirstIndex: v.FirstIndex, LastIndex: v.LastIndex, Commit: v.Commit,
		Transactions: v.Transactions, Bytes: v.Bytes, Findings: []findingLine{}, More: v.More,
	}
	for _, f := range v.Findings {
		result.Findings = append(result.Findings, findingLine{f.Segment, f.Offset, f.Index, f.Torn, f.Detail})
	}
	if err := show(out, asJSON, result, verifyText(&result)); err != nil {
		return err
	}
	if result.Damaged {
		return errors.New("the log is damaged")
	}
	return nil
}

func verifyText(v *verifyResult) string {
	var text strings.Builder
	for _, f := range v.Findings {
		what, index := "damage", "no entry"
		if f.Torn {
			what = "torn tail, harmless"
		}
		if f.Index != 0 {
			index = fmt.Sprintf("entry %d", f.Index)
		}
		fmt.Fprintf(&text, "%s, offset %d, %s: %s: %s\n", f.Segment, f.Offset, index, what, oneLine(f.Detail))
	}
	if v.More > 0 {
		fmt.Fprintf(&text, "… and %d more\n", v.More)
	}
	fmt.Fprintf(&text, "%d segments, entries %s, committed up to %d, %d transactions, %s: ",
		v.Segments, indexRange(v.FirstIndex, v.LastIndex), v.Commit, v.Transactions, units.Size(v.Bytes))
	switch {
	case v.Damaged:
		text.WriteString("damaged\n")
	case len(v.Findings) > 0:
		text.WriteString("no damage, a torn tail\n")
	default:
		text.WriteString("no damage\n")
	}
	return text.String()
}

// progressPeriod is how often a progress line is drawn again.
const progressPeriod = 200 * time.Millisecond

// progressLine shows on a terminal the progress of long work.
type progressLine struct {
	out   io.Writer
	verb  string
	drawn time.Time
}

// show returns the function that draws the line; nil if nobody would see it.
func (p *progressLine) show() func(done, total int64) {
	if !isTerminal(p.out) {
		return nil
	}
	return func(done, total int64) {
		if now := time.Now(); now.Sub(p.drawn) >= progressPeriod {
			p.drawn = now
			fmt.Fprintf(p.out, "\r\x1b[K%s: %d%% of %s", p.verb, 100*done/max(total, 1), units.Size(total))
		}
	}
}

// draw draws the line again if out is a terminal and progressPeriod has passed.
func (p *progressLine) draw(done, total int64) {
	if show := p.show(); show != nil {
		show(done, total)
	}
}

func (p *progressLine) clear() {
	if !p.drawn.IsZero() {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
