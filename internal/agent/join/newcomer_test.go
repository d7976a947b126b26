package join

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/transport"
)

// TestJudgeEmpty: what a node with an empty directory makes of the answers.
func TestJudgeEmpty(t *testing.T) {
	refused := func(c transport.Code) *transport.RejectedError { return &transport.RejectedError{Code: c, Text: "no"} }
	for _, c := range []struct {
		name             string
		r                *transport.RejectedError
		silent           []string
		joins, bootstrap bool
		role             status.Role // "" = it has heard enough
	}{
		{name: "all have answered"},
		{name: "one is silent", silent: []string{"c"}, role: status.RoleForming},
		{name: "a person knows", silent: []string{"c"}, bootstrap: true},
		{name: "it joins", silent: []string{"c"}, joins: true},
		{name: "it has lost its data", r: refused(transport.CodeReseed), role: status.RoleJoining},
		{name: "also where a person knows better", r: refused(transport.CodeReseed), bootstrap: true, role: status.RoleJoining},
		{name: "the cluster was recovered without it", r: refused(transport.CodeRecovered), role: status.RoleJoining},
		{name: "it joins, and was here with another directory", r: refused(transport.CodePeer), joins: true, role: status.RoleJoining},
		{name: "it joins, and was not added so far", r: refused(transport.CodeUnknown), joins: true},
		{name: "it is to be rebuilt", r: refused(transport.CodeRebuild), silent: []string{"c"}},
		{name: "it is refused", r: refused(transport.CodePeer), silent: []string{"c"}},
	} {
		over, role, reason := Introduction{Joins: c.joins, Bootstrap: c.bootstrap}.judge(c.r, c.silent)
		if over != (c.role == "") || role != c.role || (reason == "") != over {
			t.Errorf("%s: %t, %s, %q, want %s", c.name, over, role, reason, c.role)
		}
	}
}
