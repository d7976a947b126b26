package role

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestChoose: the named node is chosen if it can lead, else the best node. If there is none, the reason is
// given.
func TestChoose(t *testing.T) {
	replica := func(id cluster.NodeID, name string, weight int, lag time.Duration) Peer {
		return Peer{ID: id, Name: name, Kind: cluster.KindFull, Weight: weight, Live: true, Role: status.RoleReplica, Applied: 100, LogLast: 100, Lag: lag}
	}
	b, c, late := replica(2, "b", 5, 0), replica(3, "c", 7, 0), replica(4, "d", 9, 5*time.Second)
	never, logger, dead := replica(5, "e", 0, 0), replica(6, "f", 5, 0), replica(7, "g", 5, 0)
	logger.Kind, logger.Role, dead.Live = cluster.KindLogger, status.RoleLogger, false
	stopped := replica(8, "h", 9, 0)
	stopped.Stopped = true
	for name, test := range map[string]struct {
		peers []Peer
		to    string
		want  string // the name of the node, or a part of the reason
	}{
		"heaviest":              {[]Peer{b, c}, "", "c"},
		"lag before weight":     {[]Peer{b, late}, "", "b"},
		"named":                 {[]Peer{b, c, late}, "b", "b"},
		"named, though it lags": {[]Peer{b, late}, "d", "d"},
		"weight 0":              {[]Peer{b, never}, "e", "node e cannot take over: it has weight 0"},
		"logger":                {[]Peer{b, logger}, "f", "it is a logger"},
		"dead":                  {[]Peer{b, dead}, "g", "it is not heard of"},
		"not applying":          {[]Peer{b, stopped}, "", "b"},
		"named, not applying":   {[]Peer{b, stopped}, "h", "node h cannot take over: it does not apply"},
		"unknown":               {[]Peer{b}, "x", "this cluster has no other node of that name"},
		"nobody":                {[]Peer{never, logger, dead}, "", "no other node can take over: e has weight 0, g is not heard of"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Choose(1, test.peers, test.to)
			if got.Refused == "" && (got.To.Name != test.want || got.Why == "") || got.Refused != "" && !strings.Contains(got.Refused, test.want) {
				t.Errorf("%+v, want %s", got, test.want)
			}
		})
	}
}
