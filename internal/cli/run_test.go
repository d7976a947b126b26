package cli

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// In the form for the journal each line begins with its priority, and has no time, because the journal has the time
// itself.
func TestJournalLines(t *testing.T) {
	var out bytes.Buffer
	logger := newLogger(&out, formatJournal, slog.LevelDebug)
	logger.Debug("a")
	logger.Info("level=ERROR \n", "time", "of the attribute")
	logger.With("node", "b").Warn("c", "time", time.Second)
	logger.Error("d")
	want := `<7>level=DEBUG msg=a
<6>level=INFO msg="level=ERROR \n" time="of the attribute"
<4>level=WARN msg=c node=b time=1s
<3>level=ERROR msg=d
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
