package following

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/metrics"
)

// stateNode is a node that is asked only for the cluster state.
type stateNode struct {
	Node
	follow  *cluster.Follow
	closing *cluster.Closing
}

func (n stateNode) Committed() (*cluster.Follow, uint64) { return n.follow, 1 }
func (n stateNode) State() cluster.State                 { return cluster.State{Follow: n.follow, Closing: n.closing} }

// TestMetrics: a lag that is not known is absent: 0 would be the best value of all.
func TestMetrics(t *testing.T) {
	now := time.Unix(1000, 0)
	source := &cluster.Follow{Source: "db0:3306"}
	follows := cluster.FollowStatus{Follow: source, Left: 3, Seconds: 1.5, Known: true, Written: 9, LeftOut: 2}
	with := func(change func(*cluster.FollowStatus)) cluster.FollowStatus {
		st := follows
		change(&st)
		return st
	}
	type figures map[string]float64
	for name, c := range map[string]struct {
		follow   *cluster.Follow
		status   cluster.FollowStatus
		answered time.Duration
		want     figures
		closing  *cluster.Closing
	}{
		"NobodyIsFollowed": {nil, cluster.FollowStatus{}, 0, figures{"quorate_site_not_closed": 0, "quorate_cutover_source_closed": 0, "quorate_site_closed": 0, "quorate_follow": 0}, nil},
		"Closed":           {&cluster.Follow{Site: "west", Token: "x"}, cluster.FollowStatus{}, 0, figures{"quorate_site_not_closed": 0, "quorate_cutover_source_closed": 0, "quorate_site_closed": 1, "quorate_follow": 1}, nil},
		"Replica":          {source, cluster.FollowStatus{}, 0, figures{"quorate_site_not_closed": 0, "quorate_cutover_source_closed": 0, "quorate_site_closed": 0, "quorate_follow": 1}, nil},
		"Cutover":          {source, cluster.FollowStatus{}, 0, figures{"quorate_site_not_closed": 0, "quorate_cutover_source_closed": 1, "quorate_site_closed": 0, "quorate_follow": 1}, &cluster.Closing{}},
		"Primary": {source, follows, time.Second, figures{"quorate_site_not_closed": 0, "quorate_cutover_source_closed": 0, "quorate_site_closed": 0, "quorate_follow": 1, "quorate_follow_failing": 0, "quorate_follow_source_answers": 1,
			"quorate_follow_lag_transactions": 3, "quorate_follow_lag_seconds": 1.5, "quorate_follow_transactions_total": 9, "quorate_follow_left_out_total": 2}, nil},
		"Begins": {source, with(func(st *cluster.FollowStatus) { st.Known, st.Seconds = false, 0 }), time.Second, figures{"quorate_site_not_closed": 0, "quorate_cutover_source_closed": 0, "quorate_site_closed": 0, "quorate_follow": 1,
			"quorate_follow_failing": 0, "quorate_follow_source_answers": 1, "quorate_follow_lag_transactions": 3, "quorate_follow_transactions_total": 9, "quorate_follow_left_out_total": 2}, nil},
		"Unreachable": {source, with(func(st *cluster.FollowStatus) { st.Error = errors.ErrUnsupported.Error() }), answersWithin + 1, figures{"quorate_site_not_closed": 0, "quorate_cutover_source_closed": 0, "quorate_site_closed": 0, "quorate_follow": 1,
			"quorate_follow_failing": 1, "quorate_follow_source_answers": 0, "quorate_follow_transactions_total": 9, "quorate_follow_left_out_total": 2}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewService(stateNode{follow: c.follow, closing: c.closing}, nil, nil)
			s.status, s.answered = c.status, now.Add(-c.answered)
			got := figures{}
			for _, m := range s.Metrics(now) {
				if _, listed := metrics.Find(m.Name); !listed {
					t.Errorf("%s is not in the list", m.Name)
				}
				got[m.Name] = m.Value
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
