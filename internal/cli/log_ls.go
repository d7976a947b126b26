package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/seglog"
)

func newLogLsCommand() *cobra.Command {
	var source logSource
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [--config FILE | --dir DIR]",
		Short: "List the segments of a node's log",
		Long: `Lists the segments of a node's log: which entries and how many transactions each has, and
when the first and the last of these were committed, by the primary's clock, in UTC. It
reads the files, and changes nothing: the node may run or not. "quorate log verify" checks
the log.

A sealed segment does not change any more. A staged segment holds one large transaction. The
active segment is shown up to the commit index.`,
		Example: `  quorate log ls --config node.toml
  quorate log ls --dir /var/lib/quorate/log --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runLogLs(cmd.OutOrStdout(), &source, asJSON)
		},
	}
	source.flags(cmd)
	source.uncommittedFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// logListing is what `quorate log ls --json` prints.
type logListing struct {
	Dir      string           `json:"dir"`
	Term     uint64           `json:"term"`
	Commit   uint64           `json:"commit"`
	Segments []segmentListing `json:"segments"`
}

type segmentListing struct {
	Name          string     `json:"name"`
	FirstIndex    uint64     `json:"first_index"`
	LastIndex     uint64     `json:"last_index"`
	Entries       uint64     `json:"entries"`
	FirstTerm     uint64     `json:"first_term"`
	LastTerm      uint64     `json:"last_term"`
	Transactions  uint64     `json:"transactions"`
	GTIDs         string     `json:"gtids"`
	FirstTime     *time.Time `json:"first_time,omitempty"`
	LastTime      *time.Time `json:"last_time,omitempty"`
	Bytes         int64      `json:"bytes"`
	State         string     `json:"state"`
	ServerVersion string     `json:"server_version"`
	Problem       string     `json:"problem,omitempty"`
}

func runLogLs(out io.Writer, source *logSource, asJSON bool) error {
	in, err := source.open()
	if err != nil {
		return err
	}
	hs := in.HardState()
	var segments []seglog.SegmentSummary
	if err := in.Segments(func(s seglog.SegmentSummary) error {
		segments = append(segments, s)
		return nil
	}); err != nil {
		return err
	}
	if asJSON {
		listing := logListing{Dir: source.dir, Term: hs.Term, Commit: hs.Commit, Segments: []segmentListing{}}
		for i := range segments {
			listing.Segments = append(listing.Segments, listSegment(&segments[i]))
		}
		return printJSON(out, listing)
	}
	if _, err = io.WriteString(out, logTable(source.dir, hs, segments)); err != nil {
		return fmt.Errorf("print segments: %w", err)
	}
	return nil
}

func listSegment(s *seglog.SegmentSummary) segmentListing {
	l := segmentListing{
		Name: s.Name, FirstIndex: s.FirstIndex, LastIndex: s.LastIndex, Entries: s.LastIndex + 1 - s.FirstIndex,
		FirstTerm: s.FirstTerm, LastTerm: s.LastTerm, Transactions: s.Transactions,
		Bytes: s.Bytes, State: segmentState(s), ServerVersion: s.ServerVersion,
	}
	if s.GTIDs != nil {
		l.GTIDs = s.GTIDs.String()
	}
	if !s.FirstTime.IsZero() {
		l.FirstTime, l.LastTime = &s.FirstTime, &s.LastTime
	}
	if s.Problem != nil {
		l.State, l.Problem = "damaged", s.Problem.Error()
	}
	return l
}

func segmentState(s *seglog.SegmentSummary) string {
	switch {
	case s.Problem != nil:
		return "damaged"
	case s.Staged:
		return "staged"
	case s.Sealed:
		return "sealed"
	}
	return "active"
}

// logTable renders the list for people.
func logTable(dir string, hs seglog.HardState, segments []seglog.SegmentSummary) string {
	var text strings.Builder
	fmt.Fprintf(&text, "log in %s, term %d, committed up to entry %d\n\n", dir, hs.Term, hs.Commit)
	var rows [][]string
	for i := range segments {
		s := &segments[i]
		cells := []string{
			s.Name, indexRange(s.FirstIndex, s.LastIndex), indexRange(s.FirstTerm, s.LastTerm), fmt.Sprint(s.Transactions),
			commitTime(s.FirstTime), commitTime(s.LastTime), units.Size(s.Bytes), segmentState(s), s.ServerVersion, shortGTIDs(s.GTIDs),
		}
		if s.LastIndex < s.FirstIndex {
			cells[2] = "-"
		}
		rows = append(rows, cells)
	}
	text.WriteString(table("SEGMENT\tENTRIES\tTERM\tTX\tFIRST COMMIT\tLAST COMMIT\tSIZE\tSTATE\tSERVER\tGTIDS", rows))
	for i := range segments {
		if s := &segments[i]; s.Problem != nil {
			fmt.Fprintf(&text, "\n%s: %s\n", s.Name, oneLine(s.Problem.Error()))
		}
	}
	return text.String()
}
