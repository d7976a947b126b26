package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
)

// upgradeCluster makes a status, and the nodes' answers about the mysqld on their disks, from words
// such as name:role-or-kind:runs:installed[:data].
func upgradeCluster(words string) (st status.Cluster, found map[string]installedAnswer) {
	found = map[string]installedAnswer{}
	for _, word := range strings.Fields(words) {
		f := append(strings.Split(word, ":"), "", "", "")
		n := status.Node{Name: f[0], Kind: cluster.KindFull, Role: status.Role(f[1]), Reachable: true, Weight: 5,
			Mysqld: status.MysqldRunning, ServerVersion: f[2]}
		a := installedAnswer{Installed: cluster.Installed{Node: f[0], Version: f[3], Data: f[4]}}
		switch f[1] {
		case "primary":
			st.Primary, a.NativeAccounts = f[0], []string{}
		case "logger":
			n.Kind = cluster.KindLogger
		case "learner":
			n.Kind, n.Role, n.Weight = cluster.KindLearner, status.RoleReplica, 0
		case "light":
			n.Role, n.Weight = status.RoleReplica, 1
		case "away":
			n.Role, n.Reachable = status.RoleReplica, false
		case "old":
			n.Role, a = status.RoleReplica, installedAnswer{err: errors.New("no such request")}
		case "starting":
			n.Mysqld, n.Reason = status.MysqldStopped, "mysqld ended"
		case "stopped":
			n.Role, n.ApplierStopped = status.RoleReplica, "an error"
		}
		st.Nodes, found[f[0]] = append(st.Nodes, n), a
	}
	return st, found
}

// TestUpgradePlan: the plan names the right next step, and what is refused.
func TestUpgradePlan(t *testing.T) {
	const old, lts = "8.4.3", "8.4.5"
	for name, tt := range map[string]struct {
		nodes string
		state upgradeState
		next  string
		says  string
	}{
		"nothing":       {"a:primary:8.4.3:8.4.3 b:replica:8.4.3:8.4.3 l:logger", upgradeDone, "", "nothing to do"},
		"learner":       {"a:primary:8.4.3:8.4.5 b:replica:8.4.3:8.4.5 c:learner:8.4.3:8.4.5", upgradeNext, "c", "next is c"},
		"light first":   {"a:primary:8.4.3:8.4.5 b:replica:8.4.3:8.4.5 c:light:8.4.3:8.4.5", upgradeNext, "c", "quorate upgrade next"},
		"second":        {"a:primary:8.4.3:8.4.5 b:replica:8.4.3:8.4.5 c:light:8.4.5:8.4.5", upgradeNext, "b", "a: b would be older than its source: it comes first"},
		"primary last":  {"a:primary:8.4.3:8.4.5 b:replica:8.4.5:8.4.5 c:replica:8.4.5:8.4.5", upgradeNext, "a", "switchover, restart"},
		"moved":         {"a:replica:8.4.3:8.4.5 b:primary:8.4.5:8.4.5 c:replica:8.4.5:8.4.5", upgradeNext, "a", "restart"},
		"newer one":     {"a:primary:8.4.3:8.4.5 b:replica:8.4.6:8.4.6", upgradeNext, "a", "next is a"},
		"not there":     {"a:primary:8.4.3:8.4.5 b:replica:8.4.5:8.4.5 c:replica:8.4.3:8.4.3", upgradeRefused, "", "a: c would be older than its source: install mysqld 8.4.5 there first"},
		"back":          {"a:primary:8.4.5:8.4.5 b:replica:8.4.5:8.4.3", upgradeRefused, "", "b: 8.4.3 is older than 8.4.5, and MySQL does not go back: install 8.4.5 again"},
		"back a series": {"a:primary:9.7.1:9.7.1 b:replica:9.7.1:8.4.3", upgradeRefused, "", "does not go back"},
		"jump":          {"a:primary:8.0.40:9.7.1 b:replica:8.0.40:9.7.1", upgradeRefused, "", "b: MySQL does not go from 8.0.40 to 9.7.1 at once: install 8.4 first"},
		"to 8.4":        {"a:primary:8.0.40:8.4.3 b:replica:8.0.40:8.4.3", upgradeNext, "b", "next is b"},
		"to 9.7":        {"a:primary:8.4.3:9.7.1 b:replica:8.4.3:9.7.1", upgradeNext, "b", "next is b"},
		"innovation":    {"a:primary:8.1.0:9.0.0 b:replica:8.1.0:9.0.0", upgradeRefused, "", "install 8.4 first"},
		"far source":    {"a:primary:8.0.40:8.4.3 b:replica:8.4.3:9.7.1", upgradeNext, "a", "b: the primary would be its source: MySQL does not go from 8.0.40"},
		"no primary":    {"a:replica:8.4.3:8.4.5 b:replica:8.4.3:8.4.5", upgradeRefused, "", "in the way: the cluster has no primary"},
		"away":          {"a:primary:8.4.3:8.4.5 b:replica:8.4.5:8.4.5 c:away:8.4.3", upgradeRefused, "", "a: the version of c has to be known first"},
		"away, replica": {"a:primary:8.4.3:8.4.5 b:replica:8.4.3:8.4.5 c:away:8.4.3", upgradeNext, "b", "c: it is not heard of"},
		"old agent":     {"a:primary:8.4.3:8.4.3 b:old:8.4.3", upgradeRefused, "", "b: its agent does not say which mysqld is on its disk: no such request"},
		"stopped":       {"a:primary:8.4.3:8.4.5 b:replica:8.4.3:8.4.5 c:stopped:8.4.5:8.4.5", upgradeRefused, "", "in the way: node c does not apply: an error"},
		"mended by it":  {"a:primary:9.7.4:9.7.4 b:light:8.4.5:9.7.4 c:stopped:8.4.5:9.7.4", upgradeNext, "c", "next is c"},
		"not by it":     {"a:primary:8.4.5:9.7.4 b:replica:8.4.5:9.7.4 c:stopped:8.4.5:9.7.4", upgradeRefused, "", "in the way: node c does not apply: an error"},
		"not installed": {"a:primary:9.7.4:9.7.4 b:replica:9.7.4:9.7.4 c:stopped:8.4.5:8.4.5", upgradeRefused, "", "c: it is older than its source, the primary: install mysqld 9.7.4 there"},
		"alone":         {"a:primary:8.4.3:8.4.5 l:logger", upgradeRefused, "", "a: no other node can take over"},
		"fenced":        {"a:primary:8.4.3:8.4.3 b:fenced:8.4.3:8.4.3", upgradeRefused, "", "in the way: node b is fenced: mend it first"},
		"goes back":     {"a:primary:8.4.3:8.4.5 b:starting:8.4.3:8.4.5:8.4.3", upgradeRefused, "", "b: it is starting: mysqld ended. To go back, install mysqld 8.4.3 there again: its data are still of that version"},
		"data newer":    {"a:primary:8.4.3:8.4.5 b:starting:8.4.3:8.4.5:8.4.5", upgradeRefused, "", "install mysqld 8.4.3 there again. It cannot start the data, which are of 8.4.5: then run quorate node rebuild b"},
		"data unknown":  {"a:primary:8.0.40:8.4.5 b:starting:8.0.40:8.4.5", upgradeRefused, "", "If it does not start, its data have been upgraded: then run quorate node rebuild b"},
	} {
		p := planUpgrade(upgradeCluster(tt.nodes))
		if text := upgradeTable(p); p.State != tt.state || p.Next != tt.next || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %s, %q, it does not say %q:\n%s", name, p.State, p.Next, tt.says, text)
		}
	}
	st, found := upgradeCluster("a:primary:" + old + ":" + lts + " b:replica:" + old + ":" + lts + " c:away")
	st.Quorum = &status.Quorum{Voters: []string{"a", "b", "c"}, Running: []string{"a", "b"}, Needed: 2, Away: []string{"c is not heard of"}}
	st.Maintenance = &cluster.Maintenance{}
	if text := upgradeTable(planUpgrade(st, found)); !strings.Contains(text, "c is not heard of\n") || !strings.Contains(text, "quorate maintenance off") {
		t.Errorf("a voter that is needed is away:\n%s", text)
	}
}

// TestUpgradeKeepsLogins: no node goes to a version without mysql_native_password while accounts log in with it. The
// upgrade went on to its end, and from the move of the primary on no application could log in.
func TestUpgradeKeepsLogins(t *testing.T) {
	const to84, to97 = "a:primary:8.0.36:8.4.5 b:replica:8.0.36:8.4.5 c:replica:8.0.36:8.4.5", "a:primary:8.4.5:9.7.4 b:replica:8.4.5:9.7.4"
	native := []string{"'app'@'%'"}
	for name, tt := range map[string]struct {
		nodes    string
		accounts []string
		on, next string
		says     string
	}{
		"8.4":            {to84, native, "", "", "accounts log in with mysql_native_password, such as 'app'@'%', which the mysqld installed on a, b, c does not have"},
		"8.4, it is on":  {to84, native, "a b c", "b", "next is b"},
		"8.4, on some":   {to84, native, "a b", "", "'app'@'%', which the mysqld installed on c does not"},
		"no account":     {to84, []string{}, "", "b", "next is b"},
		"not known":      {to84, nil, "", "", "node a does not say which accounts"},
		"9.7":            {to97, native, "a b", "", "installed on a, b does not"},
		"8.0":            {"a:primary:8.0.36:8.0.40 b:replica:8.0.36:8.0.40", native, "", "b", "next is b"},
		"nothing":        {"a:primary:8.4.5:8.4.5 b:replica:8.4.5:8.4.5", native, "", "", "nothing to do"},
		"the last steps": {"a:primary:8.0.36:8.4.5 b:replica:8.4.5:8.4.5", native, "", "", "installed on a does not"},
	} {
		st, found := upgradeCluster(tt.nodes)
		for node, a := range found {
			a.NativePassword = strings.Contains(tt.on, node)
			a.NativeAccounts = tt.accounts
			found[node] = a
		}
		p := planUpgrade(st, found)
		p.keepLogins(st.Primary, found)
		if text := upgradeTable(p); p.Next != tt.next || !strings.Contains(text, tt.says) || (p.State == upgradeNext) != (tt.next != "") {
			t.Errorf("%s: %s, %q, it does not say %q:\n%s", name, p.State, p.Next, tt.says, text)
		}
	}
}

// TestUpgradeNext: the steps are done in their order. Each step waits for its node, also if the answer to
// the restart is that its end is not known.
func TestUpgradeNext(t *testing.T) {
	st, found := upgradeCluster("a:primary:8.4.3:8.4.5 b:replica:8.4.3:8.4.5 c:light:8.4.3:8.4.5")
	var restarted []string
	addr := onSocket(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(st)
			return
		}
		var asked control.Request
		var args cluster.InstalledRequest
		if err := errors.Join(json.NewDecoder(r.Body).Decode(&asked), json.Unmarshal(asked.Args, &args)); err != nil {
			t.Error(err)
		}
		answer := control.Answer{Code: control.CodeOK, Result: resultOf(t, found[args.Node].Installed)}
		if asked.Name == "restart" {
			restarted = append(restarted, args.Node)
			for i := range st.Nodes {
				if st.Nodes[i].Name == args.Node {
					st.Nodes[i].ServerVersion = "8.4.5"
				}
			}
			answer.Result = resultOf(t, cluster.Restarted{Node: args.Node})
			if args.Node == "b" {
				answer = control.Answer{Code: control.CodeUncertain, Error: "still starting"}
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
	if code, out, errs := run(t, "upgrade", "plan", "--addr", addr); code != exitOK || !strings.Contains(out, "next is c") || len(restarted) > 0 {
		t.Errorf("plan: %d, %q, %q", code, out, errs)
	}
	code, out, errs := run(t, "upgrade", "next", "--addr", addr)
	if code != exitOK || strings.Join(restarted, " ") != "c" || !strings.Contains(out, "c is upgraded") || !strings.Contains(out, "next is b") ||
		!strings.Contains(errs, "c: restart, from mysqld 8.4.3 to 8.4.5") {
		t.Errorf("next: %d, %q, %q; %v", code, out, errs, restarted)
	}
	code, out, errs = run(t, "upgrade", "next", "--all", "--json", "--addr", addr)
	var r upgradeRun
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitOK || strings.Join(restarted, " ") != "c b a" || r.Plan.State != upgradeDone || len(r.Done) != 2 {
		t.Errorf("next --all: %v, %d, %q, %q; %v", err, code, out, errs, restarted)
	}
	for _, step := range []struct{ runs, what, node string }{{"8.4.3", "next", "a"}, {"8.4.5", "next", ""}, {"8.4.3", "plan", ""}} {
		st.Nodes[0].ServerVersion, restarted = step.runs, nil
		want := exitFailure
		if step.node != "" {
			want = exitUncertain
		}
		code := Main(t.Context(), []string{"upgrade", step.what, "--addr", addr}, new(fullDisk), io.Discard, Deps{})
		if code != want || strings.Join(restarted, " ") != step.node {
			t.Errorf("%+v, and stdout is full: exit code %d, %v", step, code, restarted)
		}
	}
	st.Primary, st.Nodes[0].ServerVersion = "", "8.4.3"
	if code, out, _ := run(t, "upgrade", "next", "--addr", addr); code != exitFailure || !strings.Contains(out, "in the way") {
		t.Errorf("refused: %d, %q", code, out)
	}
}

// TestUpgradeLack: upgradeLack says what a restarted node still lacks.
func TestUpgradeLack(t *testing.T) {
	up := status.Node{Reachable: true, Role: status.RoleReplica, ServerVersion: "8.4.5"}
	for want, change := range map[string]func(*status.Node){
		"":                                   func(*status.Node) {},
		"it is not heard of":                 func(n *status.Node) { n.Reachable = false },
		"it is starting":                     func(n *status.Node) { n.Role = status.RoleStarting },
		"it runs mysqld 8.4.3, not 8.4.5":    func(n *status.Node) { n.ServerVersion = "8.4.3" },
		"it does not apply: x":               func(n *status.Node) { n.ApplierStopped = "x" },
		"its lag is not known":               func(n *status.Node) { n.LagUnknown = true },
		"12 transactions behind, about 30 s": func(n *status.Node) { n.LagTransactions, n.LagSeconds = 12, 30 },
	} {
		n := up
		if change(&n); upgradeLack(n, "8.4.5") != want {
			t.Errorf("%q, want %q", upgradeLack(n, "8.4.5"), want)
		}
	}
}
