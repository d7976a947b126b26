package page

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	_ "github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

const (
	// limit bounds the whole test, patience a wait: a machine may be busy.
	limit    = 5 * time.Minute
	patience = time.Minute
	token    = "a-token-that-only-this-test-knows-0"
)

// browser finds Chromium, or skips.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium: apt install chromium")
	return ""
}

// startCluster starts three nodes.
func startCluster(t *testing.T, ctx context.Context) (c *devcluster.Cluster, primary int) {
	t.Helper()
	if os.Getenv(install.EnvBaseDir) == "" {
		base, err := filepath.Abs("../../.mysql")
		if err == nil {
			_, err = os.Stat(base)
		}
		if err != nil {
			t.Skip("there is no MySQL: make mysql")
		}
		t.Setenv(install.EnvBaseDir, base)
	}
	dir, err := os.MkdirTemp("", "qpage-") // short: sockets are inside
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "quorate")
	if out, err := exec.CommandContext(ctx, "go", "build", "-C", "../..", "-o", binary, "./cmd/quorate").CombinedOutput(); err != nil {
		t.Fatalf("build quorate: %v\n%s", err, out)
	}
	c, err = devcluster.New(devcluster.Options{
		Binary: binary, Dir: filepath.Join(dir, "c"), Nodes: 3, MySQLBase: os.Getenv(install.EnvBaseDir),
		Tokens: "operate ann " + token + "\n", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	if primary, err = c.WaitAllReady(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateApplication(ctx, primary, "app"); err != nil {
		t.Fatal(err)
	}
	return c, primary
}

// write writes rows through a router until ctx ends; what fails is tried again.
func write(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for made := false; ctx.Err() == nil; {
		statement := "INSERT INTO app.t VALUES ()"
		if !made {
			statement = "CREATE TABLE IF NOT EXISTS app.t (id BIGINT AUTO_INCREMENT PRIMARY KEY)"
		}
		if _, err := db.ExecContext(ctx, statement); err == nil {
			made = true
		}
	}
	return nil
}

// tab is one page in the browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
	deaf       bool // complaints are expected from now on
}

func open(t *testing.T, ctx context.Context, program, url string, more ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewExecAllocator(ctx, append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir())), more...)...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits for the browser's end
			t.Error(err)
		}
	})
	p := &tab{t: t, ctx: ctx}
	err := errors.Join(chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, url) {
				p.complain("request for %s", e.Request.URL)
			}
		case *runtime.EventConsoleAPICalled:
			p.complain("console: %s", e.Type)
		case *runtime.EventExceptionThrown:
			p.complain("exception: %s", e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			p.complain("log: %s", e.Entry.Text)
		}
	}), call(ctx, network.Enable, network.EnableParams{}), call(ctx, log.Enable, cdp.Empty{}), call(ctx, runtime.Enable, cdp.Empty{}),
		chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900)), chromedp.Do(ctx, chromedp.Navigate(url)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *tab) complain(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.deaf {
		p.complaints = append(p.complaints, fmt.Sprintf(format, args...))
	}
}

// until waits until an expression is true in the page.
func (p *tab) until(expression string) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ok, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](expression))
		switch {
		case err == nil && ok:
			return
		case time.Now().After(deadline):
			p.picture("failed")
			text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			p.t.Fatalf("it never was so: %s: %v\n%s", expression, err, text)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-p.ctx.Done():
			p.t.Fatal(p.ctx.Err())
		}
	}
}

func evaluate[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// picture takes a screenshot. With -artifacts it is kept.
func (p *tab) picture(name string) {
	p.t.Helper()
	shot, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(p.t.ArtifactDir(), name+".png"), shot, 0o644)
	}
	if err != nil {
		p.t.Error(err)
	}
}

// wide lists elements that are wider than the window.
const wide = `[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + '.' + (e.id || e.className)).slice(0, 5).join(' ')`

// watchShifts makes the browser note what moves under the reader's eyes, from the start of the page on. It does not
// note what moves within half a second after an input, or after a change of the window's size.
const watchShifts = `window.shifts = []; new PerformanceObserver(list => shifts.push(...list.getEntries().filter(e => !e.hadRecentInput)))
	.observe({type: 'layout-shift', buffered: true}); true`

// worstShift is the Cumulative Layout Shift: the largest sum of shifts less than 1 s apart, within 5 s.
const worstShift = `(() => { let worst = 0, sum = 0, first = 0, last = -9e9;
	for (const e of shifts) {
		if (e.startTime - last > 1000 || e.startTime - first > 5000) [sum, first] = [0, e.startTime];
		[sum, last] = [sum + e.value, e.startTime];
		worst = Math.max(worst, sum);
	}
	return worst; })()`

// whatShifted names what moved most.
const whatShifted = `[...shifts].sort((a, b) => b.value - a.value).slice(0, 5).map(e => e.startTime.toFixed(0) + ' ms: ' + e.value.toFixed(4) + ' ' +
	e.sources.map(s => (s.node?.id || s.node?.className?.baseVal || s.node?.className || s.node?.nodeName) + ' ' + s.previousRect.y + '→' + s.currentRect.y).join(', ')).join('\n')`

// holdsStill fails if the layout jumps. A shift of up to 0.1 is what the Web Vitals call good.
func (p *tab) holdsStill(when string) {
	p.t.Helper()
	worst := evaluate[float64](p, worstShift)
	p.t.Logf("%s: cumulative layout shift %.4f", when, worst)
	if worst > 0.1 {
		p.t.Errorf("%s, the layout jumps: %.4f:\n%s", when, worst, evaluate[string](p, whatShifted))
	}
}

// look checks the page in the light and the dark scheme, on a screen and on a telephone.
func (p *tab) look(name string) {
	p.t.Helper()
	for _, v := range []struct {
		scheme string
		width  int64
	}{{"light", 1280}, {"dark", 1280}, {"dark", 360}, {"light", 360}} {
		err := errors.Join(chromedp.Do(p.ctx, chromedp.EmulateViewport(v.width, 900)),
			call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.scheme}}}))
		if err != nil {
			p.t.Fatal(err)
		}
		if too := evaluate[string](p, wide); too != "" {
			p.t.Errorf("%s, %s, %d wide: too wide: %s", name, v.scheme, v.width, too)
		}
		dark := evaluate[bool](p, `getComputedStyle(document.body).backgroundColor === 'rgb(18, 22, 26)'`)
		if dark != (v.scheme == "dark") {
			p.t.Errorf("%s, %s: dark is %t", name, v.scheme, dark)
		}
		p.picture(fmt.Sprintf("%s-%s-%d", name, v.scheme, v.width))
	}
	if err := chromedp.Do(p.ctx, chromedp.EmulateViewport(1280, 900)); err != nil {
		p.t.Fatal(err)
	}
}

func call[P, R any](ctx context.Context, command cdp.Command[P, R], params P) error {
	_, err := chromedp.Call(ctx, command, params)
	return err
}

// TestPage: a DBA opens the page, sees the cluster write, moves the primary with a token, and watches a
// failover. The page says when its figures are old.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("real servers take a while")
	}
	program := browser(t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit) // the browser ends in a cleanup
	t.Cleanup(cancel)
	c, primary := startCluster(t, ctx)
	seen := (primary + 1) % c.Len() // the node whose page is opened
	writing, stop := context.WithCancel(ctx)
	wrote := make(chan error, 1)
	go func() { wrote <- write(writing, c.DSN(seen)) }()
	defer func() {
		stop()
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	}()
	p := open(t, ctx, program, "http://"+c.APIAddr(seen)+"/")
	evaluate[bool](p, watchShifts)
	p.until(`document.body.className === 'live'`)
	p.until(`document.querySelector('#primary').textContent === '` + c.Name(primary) + `'`)
	p.until(`document.querySelector('#safe').textContent === 'Any one of 3 nodes may fail'`)
	p.until(`parseInt(document.querySelector('#tps').textContent) > 0 && document.querySelector('#ack').textContent !== '–'`)
	// The commit split, the positions, the lag of each replica.
	p.until(`(() => { const parts = [...document.querySelectorAll('#split-words dd')]; return parts.length === 5 && parts.every(e => /\d/.test(e.textContent)); })()`)
	p.until(`['Log', 'Applied'].every(name => [...document.querySelectorAll('#nodes td[data-label="' + name + '"]')].filter(e => /[1-9]/.test(e.textContent)).length === 3)`)
	p.until(`[...document.querySelectorAll('#topology .on-tag')].filter(e => /\d/.test(e.textContent)).length === 2`)
	p.until(`[...document.querySelectorAll('#nodes .level')].filter(e => e.textContent === 'well').length === 3`)
	p.holdsStill("from the start to live updates")
	p.look("healthy")
	if hidden := evaluate[bool](p, `document.querySelector('#do-switchover').hidden`); !hidden {
		t.Error("who has given no token is offered a switchover")
	}
	third := 3 - primary - seen
	p.moves(ctx, c, third)
	p.saysWhoMayOpen()
	p.saysThatWritesWait()
	p.maintains()
	p.watchesFailover(c, third)
	p.holdsStill("over a switchover and a failover")
	p.mu.Lock()
	if p.deaf = true; len(p.complaints) > 0 {
		t.Errorf("the browser says:\n%s", strings.Join(p.complaints, "\n"))
	}
	p.mu.Unlock()
	if err := c.KillBoth(seen); err != nil {
		t.Fatal(err)
	}
	p.until(`document.body.className === 'stale' && document.querySelector('#link-text').textContent.endsWith('cut off from here. Look at another node.')`)
	p.look("old")
}

// press presses keys of the keyboard.
func (p *tab) press(keys string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.KeyEvent(keys)); err != nil {
		p.t.Fatal(err)
	}
}

// tabTo moves the focus to an element by the keyboard, and fails if the focus cannot be seen there.
func (p *tab) tabTo(selector string) {
	p.t.Helper()
	for range 30 {
		p.press(kb.Tab)
		if !evaluate[bool](p, `document.activeElement.matches('`+selector+`')`) {
			continue
		}
		if outline := evaluate[string](p, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" {
			p.t.Errorf("the focus at %s cannot be seen", selector)
		}
		return
	}
	p.t.Fatalf("the keyboard does not get to %s", selector)
}

// maintains switches maintenance on and off, by the keyboard.
func (p *tab) maintains() {
	p.t.Helper()
	for _, then := range []string{"End maintenance…", "Maintenance…"} {
		p.tabTo("#do-maintenance")
		p.press(kb.Enter)
		p.until(`document.querySelector('#maintenance-dialog').open`)
		p.tabTo("#maintenance-ok")
		p.press(kb.Enter)
		p.until(`document.querySelector('#do-maintenance').textContent === '` + then + `'`)
		p.press(kb.Escape)
		p.until(`!document.querySelector('#maintenance-dialog').open`)
	}
}

// moves gives a token, and moves the primary, by the keyboard but for the choice of the node.
func (p *tab) moves(ctx context.Context, c *devcluster.Cluster, to int) {
	p.t.Helper()
	p.tabTo("#do-token")
	p.press(kb.Enter)
	p.until(`document.querySelector('#token-dialog').open && document.activeElement.id === 'token'`)
	p.press(token + kb.Enter)
	p.until(`!document.querySelector('#token-dialog').open && !document.querySelector('#do-switchover').hidden`)
	p.press(kb.Shift) // a key that leaves the focus where it is
	if err := chromedp.Do(p.ctx, chromedp.Click("#do-switchover")); err != nil {
		p.t.Fatal(err)
	}
	p.until(mayMove(""))
	evaluate[bool](p, `(() => { const s = document.querySelector('#switchover-to'); s.value = '`+c.Name(to)+`'; s.dispatchEvent(new Event('change')); return true; })()`)
	p.until(mayMove("to " + c.Name(to) + ": "))
	p.look("switchover")
	p.tabTo("#switchover-ok")
	p.press(kb.Enter)
	p.until(`document.querySelector('#switchover-result').textContent.startsWith('The primary moved ')`)
	p.press(kb.Escape)
	p.until(`!document.querySelector('#switchover-dialog').open && document.querySelector('#primary').textContent === '` + c.Name(to) + `'`)
	p.until(`document.querySelector('#history li.moved b').textContent === 'switchover'`)
	err := devcluster.Poll(ctx, "the audit log does not say who it was", func(ctx context.Context) (bool, string, error) {
		answer, err := api.Control(ctx, c.ControlSocket(to), control.Request{Name: "audit", Args: []byte(`{"last": 10}`)})
		return strings.Contains(string(answer.Result), "token ann@"), string(answer.Result), err
	})
	if err != nil {
		p.t.Error(err)
	}
}

// saysWhoMayOpen: without a primary a switchover in maintenance only lets a node open. The page said that the primary
// had moved from nowhere, with no writes for 0 ms.
func (p *tab) saysWhoMayOpen() {
	p.t.Helper()
	evaluate[bool](p, `(() => { const ask = window.fetch;
		window.fetch = async (...args) => { window.fetch = ask; return new Response('{"from": "", "to": "x"}'); };
		return document.querySelector('#switchover-dialog form').dispatchEvent(new Event('submit')); })()`)
	p.until(`document.querySelector('#switchover-result').textContent.startsWith('x may open now.')`)
}

// saysThatWritesWait: the primary's card is no green one while no commit ends, whatever the reason. And a failover that a clock
// has dated years ahead is not new until then, nor was it 0 s ago. All was so.
func (p *tab) saysThatWritesWait() {
	p.t.Helper()
	evaluate[bool](p, `(() => { const parse = JSON.parse, at = new Date(Date.now() + 3 * 365 * 864e5).toISOString();
		window.asTold = () => { JSON.parse = parse; return true; };
		JSON.parse = text => { const st = parse(text);
			if (st?.nodes && st.primary) {
				st.summary = [...(st.summary ?? []), {level: 'alarm', topic: 'acks', text: 'WRITES WAIT for c: it lacks 1 entry'}];
				st.last_change = {what: 'failover', node: st.primary, at};
			}
			return st; };
		return true; })()`)
	p.until(`document.querySelector('#card-primary').matches('.alarm') && document.querySelector('#primary-more').textContent === 'open, but writes wait: see below'`)
	p.until(`document.querySelector('#changed').textContent.startsWith('failover: ') && !document.querySelector('#card-changed').matches('.notice') &&
		document.querySelector('#changed-more').textContent.endsWith(' UTC, by a clock that ran ahead')`)
	evaluate[bool](p, `asTold()`)
	p.until(`document.querySelector('#card-primary').matches('.ok')`)
}

// mayMove is an expression: the dialog would let the primary move, and says so with a text. On a busy machine a long
// commit may be in the way, and then the expression asks the dialog again.
func mayMove(text string) string {
	return `(() => { const said = document.querySelector('#switchover-result').textContent;
		if (said.startsWith('The primary would not move.')) document.querySelector('#switchover-to').dispatchEvent(new Event('change'));
		return !document.querySelector('#switchover-ok').disabled && said.includes('` + text + `'); })()`
}

// watchesFailover kills the primary, and waits until the page shows the new primary.
func (p *tab) watchesFailover(c *devcluster.Cluster, primary int) {
	p.t.Helper()
	if err := c.KillBoth(primary); err != nil {
		p.t.Fatal(err)
	}
	name := c.Name(primary)
	p.until(`document.body.className === 'live' && !['` + name + `', 'NO PRIMARY'].includes(document.querySelector('#primary').textContent)`)
	p.until(`document.querySelector('#safe').textContent === 'No further failure' && document.querySelector('#card-safe').matches('.notice')`)
	p.until(`document.querySelector('#changed').textContent.startsWith('failover: ` + name + ` → ')`)
	p.until(`document.querySelector('#history li b').textContent === 'failover'`)
	p.until(`document.querySelector('#topology svg').getAttribute('aria-label').includes('` + name + ` is unreachable')`)
	p.look("failover")
}
