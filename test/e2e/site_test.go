package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// sitesTimeout bounds TestSites: two clusters, and more work than a scenario has.
const sitesTimeout = 15 * time.Minute

// promoteTakes is how long a promotion takes: the nodes of the other site are asked, and do not answer.
const promoteTakes = 6 * time.Second

// forceTakes is about how long a forced promotion takes while the other site answers.
const forceTakes = 400 * time.Millisecond

// site is a cluster that another one follows, or that follows it.
type site struct {
	*fixture
	name    string
	readers []string // its readers' ports
}

// TestSites: a cluster follows another one while writers write, over failovers of both. These lose nothing: a switch
// that is called off, a switch that is killed half-way, and a switch there and back, while the closed site fails
// over. Then the whole first site is killed, and the second is promoted and says what is lost. The first comes back
// and is closed. It does not follow, because it has transactions of its own. These are kept. Then the first site
// begins again with a backup of the second, follows, and takes over.
func TestSites(t *testing.T) {
	beside(t)
	ctx, cancel := context.WithTimeout(t.Context(), sitesTimeout)
	defer cancel()
	east, west := newSite(t, "east", 3), newSite(t, "west", 3)
	file := filepath.Join(east.Dir(), "site.password")
	if err := os.WriteFile(file, []byte(readerPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, both := range [][2]*site{{east, west}, {west, east}} {
		both[0].addPort(t, both[1], file)
		both[0].heal(t, ctx)
	}
	east.createTable(t, ctx)
	east.must(t, ctx, 0, "cluster", "set", "--router", "on")
	if out := west.must(t, ctx, 0, "site", "follow", "--check"); strings.Contains(out, "fail ") || !strings.Contains(out, "lower_case_table_names is 0, as here") || !strings.Contains(out, "time zone") {
		t.Fatalf("the check says: %s", out)
	}
	load := east.startAt(t, 4, east.dsns(east)...)
	load.awaitAcks(t, ctx, 20)
	west.must(t, ctx, 0, "site", "follow")
	west.awaitNear(t, ctx)
	west.must(t, ctx, 0, "site", "follow") // who had no answer asks again
	load.stop(t)                           // the application's account is there now, too
	load = east.startAt(t, 4, append(east.dsns(east), east.dsns(west)...)...)
	west.refused(t, ctx, 0, []int{2}, "quorate site switch", "follow", "--stop")
	west.refused(t, ctx, 0, []int{1}, "answers, and has a majority", "site", "promote", "--yes")
	east.failOver(t, ctx, load)
	west.failOver(t, ctx, load)
	west.awaitNear(t, ctx)
	west.switchCalledOff(t, ctx, east, load)
	west.switchKilled(t, ctx, east, load)
	west.mustTakeWrites(t, ctx, load)
	west.must(t, ctx, 0, "cluster", "set", "--router", "on")
	west.failOver(t, ctx, load)
	east.awaitNear(t, ctx)
	out := east.switchWhileOtherFails(t, ctx, west, load)
	if !regexp.MustCompile(`Writes stood for \d+\.\d s`).MatchString(out) {
		t.Errorf("the switch says %q", out)
	}
	t.Log(strings.TrimSpace(out))
	east.mustTakeWrites(t, ctx, load)
	west.awaitNear(t, ctx)
	load.stop(t)
	west.forceKilled(t, ctx, east)
	east.killed(t, ctx, 0, commandTakes, "site", "switch")
	t.Log(strings.TrimSpace(east.must(t, ctx, 0, "site", "switch"))) // who had no answer asks again
	west.says(t, ctx, "(this one) follows site east")
	west.awaitNear(t, ctx)
	lost := west.disaster(t, ctx, east)
	west.comesBack(t, ctx, east, lost, file)
}

func newSite(t *testing.T, name string, nodes int) *site {
	t.Helper()
	s := &site{fixture: newCluster(t, devcluster.Options{Nodes: nodes, Name: name}), name: name}
	for range s.Len() {
		s.readers = append(s.readers, s.freeAddress(t))
	}
	return s
}

// addPort gives each node a port for readers, the other site's account, and the addresses of that site.
func (s *site) addPort(t *testing.T, other *site, password string) {
	t.Helper()
	for i := range s.Len() {
		text, err := os.ReadFile(s.ConfigPath(i))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte("[feed]\n"), fmt.Appendf(nil, "[feed]\nreaders_listen = %q\n", s.readers[i]), 1)
		text = fmt.Appendf(text, "[[reader]]\nuser = \"site\"\npassword_file = %q\nsite = true\n", password)
		text = fmt.Appendf(text, "[site]\nname = %q\nnodes = [\"%s\"]\nuser = \"site\"\npassword_file = %q\nplain = true\n", other.name, strings.Join(other.readers, `", "`), password)
		if err := os.WriteFile(s.ConfigPath(i), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// dsns are the DSNs of another site's nodes, with the account of this site's application.
func (s *site) dsns(of *site) (all []string) {
	for i := range of.Len() {
		all = append(all, strings.Replace(s.DSN(0), s.RouterAddr(0), of.RouterAddr(i), 1))
	}
	return all
}

// failOver kills the primary of a site, and waits until all is well again.
func (s *site) failOver(t *testing.T, ctx context.Context, load *load) {
	t.Helper()
	primary, err := s.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	s.heal(t, ctx)
}

// says waits until "quorate site" on node 0 prints a text.
func (s *site) says(t *testing.T, ctx context.Context, what string) {
	t.Helper()
	if err := devcluster.PollCommand(ctx, "quorate site says "+what, func(ctx context.Context) (bool, string, error) {
		out, err := s.quorate(t, ctx, 0, "site")
		return err == nil && strings.Contains(out, what), out, nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (s *site) mustTakeWrites(t *testing.T, ctx context.Context, load *load) {
	t.Helper()
	load.awaitAcks(t, ctx, 50)
	s.says(t, ctx, "(this one) takes writes")
	s.says(t, ctx, "is closed for writes, and follows")
}

// holdUp keeps the following primary from writing into a table, until release is called or the primary dies. With
// load it waits until a transaction is held up: else a switch could be over before it is interrupted.
func (s *site) holdUp(t *testing.T, ctx context.Context, table string, load *load) (primary int, release func()) {
	t.Helper()
	primary, err := s.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := s.admin(t, primary).Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := devcluster.Poll(ctx, table+" is locked", func(ctx context.Context) (bool, string, error) { // it may be about to come
		_, err := conn.ExecContext(ctx, "LOCK TABLES "+table+" READ")
		return err == nil, fmt.Sprint(err), nil
	}); err != nil {
		t.Fatal(err)
	}
	if load != nil {
		load.awaitAcks(t, ctx, 5)
	}
	return primary, func() {
		if _, err := conn.ExecContext(ctx, "UNLOCK TABLES"); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
}

// switchCalledOff: transactions that do not arrive in time call the switch off, and the other site goes on.
func (s *site) switchCalledOff(t *testing.T, ctx context.Context, other *site, load *load) {
	t.Helper()
	_, release := s.holdUp(t, ctx, ledger.Table, load)
	s.refused(t, ctx, 0, []int{1}, "is as before, and this one goes on following", "site", "switch", "--within", "2s")
	release()
	load.awaitAcks(t, ctx, 50)
	other.says(t, ctx, "(this one) takes writes")
	s.awaitNear(t, ctx)
}

// forceKilled: the primary dies while it closes a site that answers, and takes over. The same command then does it,
// or says that it was done. Nothing that this site has is lost.
func (s *site) forceKilled(t *testing.T, ctx context.Context, other *site) {
	t.Helper()
	primary, err := s.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.awaitHeard(t, ctx, -1, other)
	force := []string{"site", "promote", "--yes", "--force"}
	ended := make(chan string, 1)
	go func() {
		out, err := s.quorate(t, ctx, (primary+1)%s.Len(), force...)
		ended <- fmt.Sprint(out, err)
	}()
	after := rand.N(forceTakes)
	time.Sleep(after)
	if err := s.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	t.Logf("the forced promotion whose primary was killed after %v says: %s", after, strings.TrimSpace(<-ended))
	if _, err := s.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	s.heal(t, ctx)
	out := s.must(t, ctx, 0, force...)
	if !strings.Contains(out, "goes on without site east") && !strings.Contains(out, "it was done before: ") || !strings.Contains(out, "lost:  nothing that is known") {
		t.Errorf("the forced promotion says %q", out)
	}
	s.says(t, ctx, "(this one) takes writes")
	other.says(t, ctx, "(this one) follows site west")
	other.awaitNear(t, ctx)
}

// switchKilled: the primary that should take over dies once the other site is closed. Neither site takes writes until
// an operator switches again.
func (s *site) switchKilled(t *testing.T, ctx context.Context, other *site, load *load) {
	t.Helper()
	primary, _ := s.holdUp(t, ctx, ledger.Table, load)
	ended := make(chan string, 1)
	go func() {
		out, err := s.quorate(t, ctx, (primary+1)%s.Len(), "site", "switch", "--within", "30s")
		ended <- fmt.Sprint(out, err)
	}()
	other.says(t, ctx, "(this one) is closed for writes, until site west takes over")
	if err := s.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	t.Logf("the switch that was killed says: %s", strings.TrimSpace(<-ended))
	if _, err := s.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	s.heal(t, ctx)
	s.says(t, ctx, "(this one) follows site east")
	s.says(t, ctx, "site east is closed for writes")
	s.awaitNear(t, ctx)
	t.Log(strings.TrimSpace(s.must(t, ctx, 0, "site", "switch")))
	if out := s.must(t, ctx, 0, "site", "switch"); !strings.Contains(out, "it was done before: this site has taken over from site east, and clients write to ") {
		t.Errorf("asked again: %s", out)
	}
}

// switchWhileOtherFails: the primary of the closed site dies before all of its transactions are here. The next
// primary there is closed, too, and the switch goes on.
func (s *site) switchWhileOtherFails(t *testing.T, ctx context.Context, other *site, load *load) string {
	t.Helper()
	_, release := s.holdUp(t, ctx, ledger.Table, load)
	ended := make(chan string, 1)
	go func() {
		out, err := s.quorate(t, ctx, 0, "site", "switch", "--within", "60s")
		ended <- fmt.Sprint(out, err)
	}()
	other.says(t, ctx, "(this one) is closed for writes, until site "+s.name)
	primary, err := other.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	if _, err := other.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	release()
	out := <-ended
	other.heal(t, ctx)
	return out
}

// promoteKilled: the primary dies at a random moment while it takes over. The same command then takes over, or says
// that it was done.
func (s *site) promoteKilled(t *testing.T, ctx context.Context) {
	t.Helper()
	primary, err := s.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ended, began := make(chan string, 1), time.Now()
	go func() {
		out, err := s.quorate(t, ctx, (primary+1)%s.Len(), "site", "promote", "--yes")
		ended <- fmt.Sprintf("%.1f s: %s%v", time.Since(began).Seconds(), out, err)
	}()
	after := rand.N([]time.Duration{commandTakes, promoteTakes}[rand.IntN(2)]) // it takes less than 0.1 s where connections are refused
	time.Sleep(after)
	if err := s.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	t.Logf("the promotion whose primary was killed after %v says: %s", after, strings.TrimSpace(<-ended))
	if _, err := s.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	s.heal(t, ctx)
}

// awaitHeard waits until each node, except the node but, knows all that the other site's primary has now: so the next
// primary knows it, too. What a node there says of itself is a little older.
func (s *site) awaitHeard(t *testing.T, ctx context.Context, but int, other *site) {
	t.Helper()
	there, err := gtid.ParseSet(queryStrings(t, ctx, openDSN(t, other.DSN(0), nil), "SELECT @@GLOBAL.gtid_executed")[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range s.others(but) {
		if err := devcluster.Poll(ctx, fmt.Sprintf("node %d knows what the other site has", i), func(ctx context.Context) (bool, string, error) {
			here, err := s.NodeStatus(ctx, i)
			if err != nil || here.SiteHeard == nil {
				return false, fmt.Sprint("nothing heard: ", err), nil
			}
			heard, err := gtid.ParseSet(here.SiteHeard.Executed)
			return err == nil && heard.ContainsSet(there), fmt.Sprintf("%s, %v, want %s", heard, err, there), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// lostTable has rows that only the other site has.
const lostTable = ledger.Database + ".lost"

// disaster: the whole other site dies, with transactions that were acknowledged only there. This site's primary,
// which had heard of them and not written them, dies, too. It returns the GTIDs of these transactions.
func (s *site) disaster(t *testing.T, ctx context.Context, other *site) (lost string) {
	t.Helper()
	app := openDSN(t, other.DSN(0), nil)
	if _, err := app.ExecContext(ctx, "CREATE TABLE "+lostTable+" (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	s.awaitNear(t, ctx)
	primary, _ := s.holdUp(t, ctx, lostTable, nil)
	for n := range 3 {
		if _, err := app.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", lostTable, n)); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitHeard(t, ctx, primary, other)
	atOnce(t, other.others(-1), other.KillBoth)
	if err := s.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	s.heal(t, ctx)
	if rand.IntN(2) == 0 { // else the primary dies in the first one
		s.killed(t, ctx, 0, commandTakes, "site", "promote", "--yes")
	}
	s.promoteKilled(t, ctx)
	out := s.must(t, ctx, 0, "site", "promote", "--yes")
	t.Log(out)
	if !strings.Contains(out, "goes on without site east") && !strings.Contains(out, "it was done before: site west has taken over from site east") || !strings.Contains(out, "lost:  3 transactions: ") || !strings.Contains(out, "was heard last at ") {
		t.Errorf("the promotion says %q", out)
	}
	if found := regexp.MustCompile(`lost:  3 transactions: (\S+)`).FindStringSubmatch(out); found != nil {
		lost = found[1]
	}
	s.says(t, ctx, "it MAY TAKE WRITES until it answers")
	here := other.startAt(t, 4, other.dsns(s)...)
	here.awaitAcks(t, ctx, 100)
	if err := other.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	// A fourth one may be what a new primary there tells MySQL Router before this site closes it (docs/site.md).
	other.says(t, ctx, " transactions that site west lacks")
	s.says(t, ctx, "site east is closed for writes, and follows west")
	other.clientsCannotWrite(t, ctx)
	here.awaitAcks(t, ctx, 50)
	here.stop(t)
	s.history = other.history
	s.check(t, ctx)
	return lost
}

// comesBack: the transactions that only the old site has are kept, and brought here by hand. Then that site begins
// again with a backup of this one, as docs/site.md says, follows, and takes over in order.
func (s *site) comesBack(t *testing.T, ctx context.Context, old *site, lost, password string) {
	t.Helper()
	kept := t.TempDir()
	old.must(t, ctx, 0, "log", "export", "--out-dir", kept)
	rows := rowsOf(t, ctx, kept, lost)
	if len(rows) != 3 {
		t.Fatalf("the old site's log has the rows %v of %s, want 3", rows, lost)
	}
	app := openDSN(t, old.dsns(s)[0], nil)
	for _, row := range rows {
		mustDo(t, ctx, app, fmt.Sprintf("INSERT INTO %s VALUES (%s)", lostTable, row))
	}
	if err := old.Stop(); err != nil {
		t.Fatal(err)
	}
	primary, err := s.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	repo := t.TempDir()
	s.must(t, ctx, (primary+1)%s.Len(), "backup", "--new", "--directory", repo)
	anew := newSite(t, old.name, 1)
	anew.readers = old.readers[:1]
	anew.addPort(t, s, password)
	anew.must(t, ctx, 0, "restore", "--latest", "--directory", repo)
	anew.heal(t, ctx)
	anew.must(t, ctx, 0, "site", "follow")
	anew.must(t, ctx, 0, "cluster", "set", "--events", "on")
	load := old.startAt(t, 2, old.dsns(s)...)
	load.awaitAcks(t, ctx, 50)
	anew.awaitNear(t, ctx)
	load.stop(t)
	t.Log(strings.TrimSpace(anew.must(t, ctx, 0, "site", "switch")))
	anew.history = old.history
	anew.check(t, ctx)
	if got := queryStrings(t, ctx, anew.local(t, 0), "SELECT COUNT(*) FROM "+lostTable)[0]; got != "3" {
		t.Errorf("%s rows that were lost are at the site that came back, want 3", got)
	}
}

// rowsOf are the first columns of the rows that transactions have inserted, in binlogs that were exported.
func rowsOf(t *testing.T, ctx context.Context, dir, gtids string) (rows []string) {
	t.Helper()
	in, err := install.Discover(mysqlBase(t))
	if err != nil {
		t.Fatal(err)
	}
	argv, err := in.MysqlbinlogArgv()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "export.*"))
	if err != nil {
		t.Fatal(err)
	}
	argv = append(append(argv, "-v", "--base64-output=DECODE-ROWS", "--include-gtids="+gtids), files...)
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("mysqlbinlog: %v: %s", err, out)
	}
	for _, found := range regexp.MustCompile(`(?m)^### INSERT INTO .*\n### SET\n###   @1=(.*)$`).FindAllStringSubmatch(string(out), -1) {
		rows = append(rows, found[1])
	}
	return rows
}
