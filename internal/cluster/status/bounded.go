package status

import (
	"fmt"
	"strings"
)

// statusTextBytesMax bounds each text of a status that goes to peers. JSON may make six bytes of one byte, and
// there are ten such texts: 960 KiB, where transport accepts 1 MiB. SiteHeard is another 16 KiB, in which
// nothing is escaped.
const statusTextBytesMax = 16 << 10

// Bounded returns the status with all texts short enough to be sent: a GTID set has no bound. A text that was
// cut says so, and is no GTID set any more. Peers only show these texts, or check whether there is one. Peers
// do use SiteHeard: if it is too long, it is not sent. The fields that only an answer has (InWords) are not
// sent either.
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
