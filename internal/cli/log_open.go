package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/agent"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// logSource says which log a command reads.
type logSource struct {
	config, dir string
	uncommitted bool
}

// flags adds the flags that all commands on a log's files have.
func (s *logSource) flags(cmd *cobra.Command) {
	configFlag(cmd, &s.config)
	cmd.Flags().StringVarP(&s.dir, "dir", "d", "", "the log's `directory`: DATA_DIR/log of a node, or a copy")
	// It cannot fail: the flag exists.
	_ = cmd.MarkFlagDirname("dir")
}

// uncommittedFlag adds --uncommitted.
func (s *logSource) uncommittedFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.uncommitted, "uncommitted", false, "include what is after the commit index; it may yet be replaced")
}

// untilIndex refuses an --until-index of 0, which would count as no limit.
func untilIndex(cmd *cobra.Command) error {
	if f := cmd.Flags().Lookup("until-index"); f.Changed && f.Value.String() == "0" {
		return usage(errors.New("--until-index 0: the log begins at entry 1"))
	}
	return nil
}

// open opens the log for reading. It takes no lock: the node may run.
func (s *logSource) open() (*seglog.Inspector, error) {
	dataDir := "" // of the node, if it is a node's log
	switch {
	case s.config != "" && s.dir != "":
		return nil, usage(errors.New("--dir and --config both say where the log is: use one of them"))
	case s.dir == "" && configPath(s.config) == "":
		return nil, usage(fmt.Errorf("--config or --dir is missing: they say where the log is, and there is no %s", defaultConfig))
	case s.dir == "":
		c, err := agentConfig(s.config)
		if err != nil {
			return nil, err
		}
		dataDir, s.dir = c.DataDir, filepath.Join(c.DataDir, "log")
	}
	in, err := seglog.Inspect(seglog.InspectOptions{FS: vfs.OS{}, Dir: s.dir, Uncommitted: s.uncommitted})
	if dataDir != "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, seglog.ErrNoLog)) {
		if lost := agent.CheckLog(dataDir); lost != nil {
			return nil, lost
		}
		return nil, fmt.Errorf("this node has no log yet (%w): \"quorate status\" says why", err)
	}
	if errors.Is(err, seglog.ErrNoLog) {
		return nil, usage(fmt.Errorf("%s holds no log of a node: name its DATA_DIR/log", s.dir))
	}
	return in, err
}

// indexRange prints the entries from one index to another.
func indexRange(first, last uint64) string {
	switch {
	case last < first:
		return "none"
	case last == first:
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// commitTime prints when something was committed; "-" = never.
func commitTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return units.Time(t)
}

// shortSourcesMax is how many sources of a set are shown in a cell.
const shortSourcesMax = 2

// shortGTIDs prints a set in one cell: only the beginning of a UUID, the first of many sources, and the two ends of many
// intervals.
func shortGTIDs(set *gtid.Set) string {
	if set == nil || set.IsEmpty() {
		return "-"
	}
	var sources []string
	for source := range strings.SplitSeq(set.String(), ",") {
		uuid, intervals, _ := strings.Cut(strings.TrimSpace(source), ":")
		if n := strings.Count(intervals, ":"); n > 0 {
			first, _, _ := strings.Cut(intervals, ":")
			intervals = first + ":…:" + intervals[strings.LastIndex(intervals, ":")+1:]
		}
		sources = append(sources, uuid[:min(len(uuid), 8)]+"…:"+intervals)
	}
	if n := len(sources) - shortSourcesMax; n > 0 {
		sources = append(sources[:shortSourcesMax], fmt.Sprintf("+%d", n))
	}
	return strings.Join(sources, " ")
}
