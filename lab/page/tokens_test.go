package page

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/sys/metrics"
)

// shown is an agent that only shows this status. It has no metrics and no leader.
type shown status.Cluster

// cutOff is the status of a node that knows of no primary. One node refuses it, and another does not apply.
func cutOff() shown {
	return shown{Cluster: "shop", Self: "a", NoPrimarySeconds: 90,
		Nodes: []status.Node{
			{ID: 1, Name: "a", Kind: cluster.KindFull, Role: status.RoleUnverified, Reachable: true},
			{ID: 2, Name: "b", Kind: cluster.KindFull, Refusal: &status.Refusal{By: "b", Of: "a", Why: "it knows another data directory of it"}},
			{ID: 3, Name: "c", Kind: cluster.KindFull, Role: status.RoleReplica, Mysqld: status.MysqldRunning, Reachable: true,
				LagTransactions: 2, ApplierStopped: "replication has stopped: no such table"},
		}}
}

func (s shown) Status() status.Cluster           { return status.Cluster(s) }
func (shown) Metrics() []metrics.Sample          { return nil }
func (shown) Collectors() []prometheus.Collector { return nil }
func (shown) Control(_ context.Context, r control.Request) control.Answer {
	if r.Name == "history" {
		return control.Answer{Code: control.CodeOK, Result: []byte("[]")}
	}
	return control.Answer{Code: control.CodeNoLeader, Error: "nobody leads"}
}

// serve starts an agent's API on a port of this host. It shows what.
func serve(t *testing.T, ctx context.Context, what shown, tokensFile string) (port string) {
	t.Helper()
	s := api.New(api.Config{Listen: "127.0.0.1:0", TokensFile: tokensFile, Logger: slog.New(slog.DiscardHandler)}, what)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	_, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestSources: a learner is drawn behind the node that feeds it: a replica, another learner, or the primary.
func TestSources(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes a while")
	}
	program := browser(t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit) // the browser ends in a cleanup
	t.Cleanup(cancel)
	node := func(id cluster.NodeID, name string, kind cluster.Kind, role status.Role, fedBy string) status.Node {
		return status.Node{ID: id, Name: name, Kind: kind, Role: role, Mysqld: status.MysqldRunning, Reachable: true, Leader: 1, LogLast: 100, Applied: 100, FedBy: fedBy}
	}
	port := serve(t, ctx, shown{Cluster: "shop", Self: "a", Primary: "a", Nodes: []status.Node{
		node(1, "a", cluster.KindFull, status.RolePrimary, ""), node(2, "b", cluster.KindFull, status.RoleReplica, ""), node(3, "c", cluster.KindLogger, status.RoleLogger, ""),
		node(4, "d", cluster.KindLearner, status.RoleReplica, "b"), node(5, "e", cluster.KindLearner, status.RoleReplica, "d"), node(6, "f", cluster.KindLearner, status.RoleReplica, ""),
	}}, "")
	p := open(t, ctx, program, "http://127.0.0.1:"+port+"/")
	p.until(`document.body.className === 'live'`)
	// Each line ends at the left of its node. It begins at the node that feeds that node.
	const from = `(() => { const paths = [...document.querySelectorAll('#topology path.link')].map(e => e.getAttribute('d'));
		const starts = paths.map(d => +d.split(' ')[1]); const head = starts[0]; return paths.length + ' ' + starts.map(s => s === head ? 'a' : 'other').join(' '); })()`
	p.until(from + ` === '5 a a other other a'`)
	for _, of := range []string{"d: fed by b", "e: fed by d"} {
		name, words, _ := strings.Cut(of, ": ")
		p.until(`[...document.querySelectorAll('#nodes tr')].some(e => e.innerText.includes('` + name + `') && e.innerText.includes('` + words + `'))`)
	}
	p.look("sources")
}

// TestTokens: a token with the role read opens the page, and offers no action. No token is sent in clear over a
// network before the user has confirmed it. The test needs no cluster.
func TestTokens(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes a while")
	}
	program := browser(t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit) // the browser ends in a cleanup
	t.Cleanup(cancel)
	const reads = "a-token-to-read-that-this-test-knows"
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("read prom "+reads+"\noperate ann "+token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := serve(t, ctx, cutOff(), file)
	const why = `document.querySelector('#token-result').textContent`
	const shut = `!document.querySelector('#token-dialog').open`
	p := open(t, ctx, program, "http://127.0.0.1:"+port+"/")
	p.deafen()
	p.until(`document.querySelector('#token-dialog').open`)
	p.press("nobodys-token" + kb.Enter)
	p.until(why + ` === 'this token is not in api.tokens_file'`)
	p.clear()
	p.press(reads + kb.Enter)
	p.until(shut + ` && document.body.className === 'live' && document.querySelector('#do-switchover').hidden`)
	p.until(`document.querySelector('#primary-more').textContent === 'since 1 min: nobody can write, as far as this node knows'`)
	p.until(`document.querySelector('#nodes').innerText.includes('refused') && document.querySelector('#nodes').innerText.includes('0.0 s, 2 tx, stopped')`)
	p.look("reading")
	p.stumbles()

	// The same at a name that is not that of loopback.
	p = open(t, ctx, program, "http://db1.example:"+port+"/", chromedp.Flag("host-resolver-rules", "MAP db1.example 127.0.0.1"))
	p.deafen()
	p.until(`document.querySelector('#token-dialog').open`)
	p.press(reads + kb.Enter)
	p.until(why + `.startsWith('It was not sent yet.') && sessionStorage.length === 0 && document.querySelector('#token-ok').textContent === 'Send it in clear'`)
	p.look("in clear")
	p.clear()
	p.press(token + kb.Enter) // another token must be confirmed again
	p.until(why + `.startsWith('It was not sent yet.') && sessionStorage.length === 0`)
	p.press(kb.Enter)
	p.until(why + `.startsWith('Host must be localhost or an address')`)
	if heard := evaluate[bool](p, `document.querySelector('#do-switchover').hidden`); !heard {
		t.Error("who may not operate from there is offered a switchover")
	}
	if strings.Contains(evaluate[string](p, `document.body.innerText`), token) {
		t.Error("the token is shown")
	}
}

// deafen ignores the browser's complaints from now on: it complains of each answer that refuses something.
func (p *tab) deafen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

// clear empties the field of the token, and moves the focus there.
func (p *tab) clear() {
	p.t.Helper()
	evaluate[bool](p, `(() => { const e = document.querySelector('#token'); e.value = ''; e.focus(); return true; })()`)
}

// stumbles breaks the page. The page must say that its figures are old, and why, and go on as soon as it can.
func (p *tab) stumbles() {
	p.t.Helper()
	evaluate[bool](p, `(window.taken = document.querySelector('#tps')).removeAttribute('id') === undefined`)
	p.until(`document.body.className === 'stale' && document.querySelector('#link-text').textContent.includes('What it says cannot be shown here: ')`)
	evaluate[bool](p, `(window.taken.id = 'tps') === 'tps'`)
	p.until(`document.body.className === 'live'`)
}
