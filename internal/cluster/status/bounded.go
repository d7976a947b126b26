package status

import (
	"fmt"
	"strings"
)

// statusTextBytesMax bounds each text of a status that goes to peers. JSON may make
// six bytes of one, and there are ten such texts: 960 KiB, where transport
// takes 1 MiB. SiteHeard is another 16 KiB, in which nothing is escaped.
const statusTextBytesMax = 16 << 10

// Bounded returns the status with no text that is too long to be sent: a GTID set has
// no bound. What was cut says so, and is no GTID set any more. Peers only show these
// texts, or ask whether there is one. But for SiteHeard, which they use: one that is too long is not sent. Neither
// is what an answer has in words.
func (s Node) Bounded() Node {
	s.Level, s.About, s.RoleLast = "", nil, ""
	if s.SiteHeard != nil && len(s.SiteHeard.Executed) > statusTextBytesMax {
		s.SiteHeard = nil
	}
	for _, text := range []*string{
		&s.Reason, &s.LogDetail, &s.PurgeBlocked, &s.StageBlocked, &s.ApplierStopped, &s.Pace,
		&s.GTIDExecuted, &s.Errant, &s.ErrantSaved, &s.EventNames,
	} {
		if n := len(*text); n > statusTextBytesMax {
			end := fmt.Sprintf(" … (cut: all of it has %d bytes)", n)
			*text = strings.ToValidUTF8((*text)[:statusTextBytesMax-len(end)], "") + end
		}
	}
	return s
}
