package primary

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestWatch: what a poll of mysqld finds that must not be.
func TestWatch(t *testing.T) {
	has := func(all bool) func(*gtid.Set) bool { return func(*gtid.Set) bool { return all } }
	for what, c := range map[string]struct {
		doubts []string
		want   string
	}{
		"a primary in order":         {WatchPrimary(SemiSync{On: true, Clients: 1}, nil), ""},
		"semi-sync is off":           {WatchPrimary(SemiSync{Clients: 1}, nil), "semi-sync was switched off"},
		"foreign replica and reader": {WatchPrimary(SemiSync{On: true, Clients: 2}, []string{"cdc"}), "a foreign semi-sync replica is attached (2 in all); account cdc reads the binlog directly"},
		"a primary has more":         {WatchExecuted(status.RolePrimary, nil, has(false)), "mysqld holds transactions that are not committed"},
		"a replica has more":         {WatchExecuted(status.RoleReplica, nil, has(false)), "mysqld holds transactions that are not committed"},
		"a replica has no more":      {WatchExecuted(status.RoleReplica, nil, has(true)), ""},
		"the judge is to say":        {WatchExecuted(status.RoleUnverified, nil, has(false)), ""},
	} {
		if got := strings.Join(c.doubts, "; "); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	for s, stopped := range map[ReplicaStatus]bool{{Receives: true, Applies: true}: false, {Receives: true}: true, {Applies: true}: true} {
		if s.Stopped() != stopped {
			t.Errorf("%+v: stopped is %t", s, s.Stopped())
		}
	}
}
