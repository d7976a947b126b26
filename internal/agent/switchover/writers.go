package switchover

import (
	"fmt"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// checkWriters says which statements that write keep a switchover from beginning (blocks),
// and which of the others could have it called off (note).
func checkWriters(writers []mysqld.Session, maxPause time.Duration) (blocks []string, note string) {
	var short []mysqld.Session
	for _, w := range writers {
		if time.Duration(w.Seconds)*time.Second < max(time.Second, maxPause/2) {
			short = append(short, w)
			continue
		}
		blocks = append(blocks, fmt.Sprintf("a statement that writes is under way (%v): closing writes would wait for it, and all other writes behind it", w))
	}
	if len(short) > 0 {
		note = fmt.Sprintf("%s now (%s): a switchover is called off if writes cannot be closed within %s",
			units.Count(len(short), "statement writes", "statements write"), sessionList(short), units.Duration(maxPause))
	}
	return blocks, note
}

// sessionsShownMax bounds the sessions that a sentence names.
const sessionsShownMax = 3

func sessionList(sessions []mysqld.Session) string {
	var names []string
	for i, s := range sessions {
		if i == sessionsShownMax {
			names = append(names, "…")
			break
		}
		names = append(names, s.String())
	}
	return strings.Join(names, "; ")
}

// HeldBy says what to do about sessions, of which the first has written for longest.
func HeldBy(writers []mysqld.Session) string {
	return fmt.Sprintf("closing writes waited for %s: %s; wait until it is done, or end the session (KILL %d), or give more time (--max-pause), and try again",
		units.Count(len(writers), "statement that writes", "statements that write"), sessionList(writers), writers[0].ID)
}
