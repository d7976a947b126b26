package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestBackup: a table is dropped by mistake, and a new cluster has everything from before the DROP. Then all hosts
// are lost at once, and a new cluster lacks only the newest transactions.
func TestBackup(t *testing.T) {
	beside(t)
	f := newCluster(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	var d drill
	f.scenario(t, "DroppedTable", func(t *testing.T, ctx context.Context) {
		f.createTable(t, ctx)
		d = f.newDrill(t, (f.heal(t, ctx)+1)%3)
		f.droppedTable(t, ctx, d)
	})
	f.scenario(t, "AllLost", func(t *testing.T, ctx context.Context) { f.allLost(t, ctx, d) })
}

// drill is a repository, with its key. One node uses it as a directory, the others reach the same directory by commands.
type drill struct {
	repo, key, recipient string
	directory            int
}

// newDrill makes a repository whose objects are encrypted, and adds it to the nodes' configurations.
func (f *fixture) newDrill(t *testing.T, directory int) drill {
	t.Helper()
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	d := drill{filepath.Join(f.Dir(), "repository"), filepath.Join(f.Dir(), "repository.key"), own.Recipient().String(), directory} // all scenarios'
	for _, dir := range []string{d.repo, d.parts()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(d.key, []byte(own.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.configure(t, directory, fmt.Sprintf("[backup]\ndirectory = %q\n%s", d.repo, d.settings()))
	for _, i := range f.others(directory) {
		f.configure(t, i, d.commands())
	}
	return d
}

// parts is the directory into which put_command writes. It then renames a complete object, as docs/backup.md says.
func (d drill) parts() string { return d.repo + ".parts" }

func (d drill) settings() string {
	return fmt.Sprintf("recipients = [%q]\ninterval = \"1s\"\n", d.recipient)
}

func (d drill) commands() string {
	return strings.NewReplacer("REPO", d.repo, "PARTS", d.parts()).Replace(`[backup]
put_command    = 'cat >"PARTS/$QUORATE_PART" && mv "PARTS/$QUORATE_PART" "REPO/$QUORATE_OBJECT" || { rm -f "PARTS/$QUORATE_PART"; exit 1; }'
get_command    = 'cat "REPO/$QUORATE_OBJECT"'
list_command   = 'ls "REPO"'
delete_command = 'rm "REPO/$QUORATE_OBJECT"'
`) + d.settings()
}

// configure adds to the configuration of a node.
func (f *fixture) configure(t *testing.T, i int, text string) {
	t.Helper()
	file, err := os.OpenFile(f.ConfigPath(i), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(text)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) droppedTable(t *testing.T, ctx context.Context, d drill) {
	primary, replica := f.heal(t, ctx), d.directory
	f.refused(t, ctx, replica, []int{1}, "no full backup", "archive", "--once")
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 100)
	local := f.local(t, primary)
	mustDo(t, ctx, local, "CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY, x LONGBLOB)")
	open, err := local.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"XA START 'x'", "INSERT INTO shop.orders VALUES (-1, 'prepared')", "XA END 'x'", "XA PREPARE 'x'"} {
		if _, err := open.ExecContext(ctx, q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	_ = open.Close()
	f.refused(t, ctx, replica, []int{1}, "quorate backup --new", "backup")
	began := time.Now()
	f.must(t, ctx, replica, "backup", "--new")
	t.Log("a full backup")
	if at := f.metric(t, ctx, replica, "quorate_backup_full_timestamp_seconds"); at < float64(began.Unix()) || at > float64(time.Now().Unix()) {
		t.Errorf("the newest full backup is of %v, it was begun at %v", at, began)
	}
	archives := f.archives(t, ctx, replica, 3-primary-replica)
	f.killFull(t, ctx, replica, d)
	t.Log("full backups that were killed")
	f.killPrune(t, ctx, primary) // by commands: it takes longer
	mustDo(t, ctx, local, "INSERT INTO shop.orders VALUES (1, 'small'), (2, REPEAT('y', 20000000))", "XA COMMIT 'x'")
	load.awaitAcks(t, ctx, 100)
	if err := f.KillBoth(primary); err != nil { // with what was in flight
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 100)
	primary = f.heal(t, ctx)
	load.stop(t)
	local = f.local(t, primary)
	rows := "SELECT CONCAT_WS(' ', COUNT(*), SUM(LENGTH(x)), SUM(id)) FROM shop.orders"
	want := queryStrings(t, ctx, local, rows)[0]
	drop := dropped{gtid: f.nextGTID(t, ctx, local), rows: rows, want: want}
	mustDo(t, ctx, local, "DROP TABLE shop.orders", "CREATE TABLE shop.after (id INT PRIMARY KEY)")
	drop.at = f.findDrop(t, ctx, primary, drop.gtid)
	for _, stop := range archives {
		stop()
	}
	f.must(t, ctx, replica, "archive", "--once")
	t.Log("the archive ends")
	f.verified(t, ctx, replica, d)
	f.restored(t, ctx, d, drop)
}

// dropped is a table that was dropped: by which transaction, when, and the result of a query about its former rows.
type dropped struct {
	gtid, rows, want string
	at               time.Time
}

// findDropCommand is the command of docs/backup.md that finds a DROP.
var findDropCommand = regexp.MustCompile(`(?m)^\$ sudo (quorate log dump .*)$`)

// findDrop finds the DROP as docs/backup.md says, and returns when that was.
func (f *fixture) findDrop(t *testing.T, ctx context.Context, i int, want string) (at time.Time) {
	t.Helper()
	page, err := os.ReadFile("../../docs/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	found := findDropCommand.FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/backup.md has no command that finds a DROP")
	}
	command := strings.NewReplacer("/etc/quorate/node.toml", f.ConfigPath(i), "quorate", os.Getenv(binaryVariable)).Replace(string(found[1]))
	if err := devcluster.Poll(ctx, "the DROP is found", func(ctx context.Context) (bool, string, error) { // the node's log may not say yet that it is committed
		out, err := exec.CommandContext(ctx, "/bin/sh", "-c", command).CombinedOutput()
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if found := strings.Fields(line); len(found) > 2 && found[0] == want {
			at, err = time.Parse(time.DateTime, found[1]+" "+found[2])
			return err == nil, line, err
		}
		return false, fmt.Sprintf("%s: %v: %s, want %s", command, err, out, want), nil
	}); err != nil {
		t.Fatal(err)
	}
	return at
}

// verified verifies the newest full backup, after a verification that was killed.
func (f *fixture) verified(t *testing.T, ctx context.Context, i int, d drill) {
	t.Helper()
	scratch, err := os.MkdirTemp("", "qv-") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(scratch) })
	f.killVerify(t, ctx, i, scratch, d)
	out := f.must(t, ctx, i, "backup", "verify", "--scratch", scratch, "--identity", d.key)
	if !strings.Contains(out, "is whole") || !strings.Contains(out, "2 tables") || !strings.Contains(out, "was left by a verification that was killed, and is removed") {
		t.Errorf("verify: %s", out)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("a verification has left %v, %v", left, err)
	}
}

// archives runs archives on several nodes at the same time, and kills and starts them again now and then.
func (f *fixture) archives(t *testing.T, ctx context.Context, nodes ...int) (stops []func()) {
	t.Helper()
	for _, i := range nodes {
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				life, end := context.WithTimeout(ctx, time.Duration(1+rand.IntN(4))*time.Second)
				_ = exec.CommandContext(life, os.Getenv(binaryVariable), "archive", "--config", f.ConfigPath(i)).Run() // it is killed
				end()
			}
		}()
		stops = append(stops, func() { cancel(); <-done })
		t.Cleanup(cancel)
	}
	return stops
}

// killVerify kills a verification half-way: its files stay, and no process runs on them.
func (f *fixture) killVerify(t *testing.T, ctx context.Context, i int, scratch string, d drill) {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Getenv(binaryVariable), "backup", "verify", "--scratch", scratch, "--identity", d.key, "--config", f.ConfigPath(i))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lock := ""
	if err := devcluster.Poll(ctx, "a verification has begun to start mysqld", func(context.Context) (bool, string, error) {
		found, err := filepath.Glob(filepath.Join(scratch, "qv-*", "quorate-verify", "mysql", "mysqld.lock"))
		if len(found) > 0 {
			lock = found[0]
		}
		return len(found) > 0, scratch, err
	}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(rand.N(2 * time.Second))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if err := devcluster.Poll(ctx, "no mysqld of a verification that was killed runs on", func(context.Context) (bool, string, error) {
		file, err := os.Open(lock)
		if err != nil {
			return false, "", err
		}
		defer file.Close()
		return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil, lock, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// killFull kills full backups half-way: they do not count, and the next one is whole.
func (f *fixture) killFull(t *testing.T, ctx context.Context, i int, d drill) {
	t.Helper()
	copied := filepath.Join(f.DataDir(i), "mysql", "tmp", "backup")
	gone := func(context.Context) (bool, string, error) {
		_, err := os.Stat(copied)
		return errors.Is(err, os.ErrNotExist), copied, nil
	}
	for killed, tries := 0, 0; killed < 2; tries++ {
		if tries == 20 {
			t.Fatalf("of %d full backups, %d were killed half-way", tries, killed)
		}
		if killedAt(t, ctx, copied, 100*time.Millisecond, "backup", "--config", f.ConfigPath(i)) {
			killed++
		}
		if err := devcluster.Poll(ctx, "the copy of a backup that was killed is gone", gone); err != nil {
			t.Fatal(err)
		}
	}
	f.killCloned(t, ctx, i, copied)
	// The agent ends what was begun for a command that is gone, and then takes the next one.
	if err := devcluster.Poll(ctx, "a backup behind those that were killed", func(ctx context.Context) (bool, string, error) {
		out, err := f.quorate(t, ctx, i, "backup", "--json")
		return err == nil, out, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(copied); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a copy of the data was left: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(d.repo, ".full-*.part")); err != nil || len(left) > 0 {
		t.Errorf("what was killed has left %v, %v", left, err)
	}
	if whole := f.fulls(t, ctx, i); len(whole) < 2 {
		t.Errorf("the full backups %v are whole", whole)
	}
}

// fulls returns the names of the full backups that are whole.
func (f *fixture) fulls(t *testing.T, ctx context.Context, i int) (whole []string) {
	t.Helper()
	var all []struct{ Name, Problem string }
	out := f.must(t, ctx, i, "backup", "list", "--json")
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, full := range all {
		if full.Problem == "" {
			whole = append(whole, full.Name)
		}
	}
	return whole
}

// killCloned kills the mysqld that is copied: the full backup fails, and does not count.
func (f *fixture) killCloned(t *testing.T, ctx context.Context, i int, copied string) {
	t.Helper()
	for range 20 {
		ended := make(chan error, 1)
		go func() {
			_, err := f.quorate(t, ctx, i, "backup")
			ended <- err
		}()
		awaitFile(ctx, copied, ended)
		wait := time.NewTimer(rand.N(100 * time.Millisecond))
		<-wait.C
		if err := f.KillMysqld(i); err != nil {
			t.Fatal(err)
		}
		if exitCode(<-ended) == 1 {
			return
		} // else the data were copied before
		f.heal(t, ctx)
	}
	t.Fatal("no mysqld was killed while it was copied")
}

// killPrune kills the command at random. The next prune finishes the work, and the newest full backup stays.
func (f *fixture) killPrune(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	whole := f.fulls(t, ctx, i)
	prune := []string{"backup", "prune", "--keep", "1"}
	for range 4 {
		f.killed(t, ctx, i, 60*time.Millisecond, prune...)
	}
	f.must(t, ctx, i, prune...)
	if d := cmp.Diff(whole[len(whole)-1:], f.fulls(t, ctx, i)); d != "" {
		t.Errorf("what is left by prune (-want +got):\n%s", d)
	}
}

// killedAt kills a command within a time after a file appears, and tells whether the file still existed then. It returns
// false if the command ended before.
func killedAt(t *testing.T, ctx context.Context, file string, within time.Duration, args ...string) bool {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Getenv(binaryVariable), args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var due <-chan time.Time // nil while the file is not there yet
	for {
		select {
		case <-ended:
			return false // it was faster
		case <-tick.C:
			if _, err := os.Stat(file); due == nil && err == nil {
				due = time.After(rand.N(within))
			}
		case <-due:
			_, err := os.Stat(file)
			_ = cmd.Process.Kill() // else it has ended
			<-ended
			return err == nil && cmd.ProcessState.ExitCode() == -1
		}
	}
}

// restoredTo makes a cluster of one node that has everything up to a point, and returns how long the command took.
func (f *fixture) restoredTo(t *testing.T, ctx context.Context, d drill, drop dropped, point ...string) time.Duration {
	t.Helper()
	g := newCluster(t, devcluster.Options{Nodes: 1})
	g.configure(t, 0, d.commands())
	began := time.Now()
	g.must(t, ctx, 0, append([]string{"restore", "--identity", d.key}, point...)...)
	took := time.Since(began)
	g.heal(t, ctx)
	g.holdsDropped(t, ctx, drop)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	return took
}

// holdsDropped fails the test unless the table is as it was, and nothing from after the DROP is there.
func (f *fixture) holdsDropped(t *testing.T, ctx context.Context, drop dropped) {
	t.Helper()
	local := f.local(t, 0)
	if got := queryStrings(t, ctx, local, drop.rows)[0]; got != drop.want {
		t.Errorf("the restored table has %s, want %s", got, drop.want)
	}
	if got := queryStrings(t, ctx, local, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'shop'")[0]; got != "1" {
		t.Errorf("%s tables, want 1", got)
	}
}

// before returns the previous GTID of the same server.
func before(t *testing.T, text string) string {
	t.Helper()
	id, err := gtid.ParseGTID(text)
	if err != nil {
		t.Fatal(err)
	}
	id.N--
	return id.String()
}

// restored makes new clusters with the state before a transaction, and lets other nodes join one of them.
func (f *fixture) restored(t *testing.T, ctx context.Context, d drill, drop dropped) {
	t.Helper()
	f.restoredTo(t, ctx, d, drop, "--to-time", drop.at.Add(-time.Microsecond).Format(time.RFC3339Nano))
	took := f.restoredTo(t, ctx, d, drop, "--to-gtid", before(t, drop.gtid))
	g := newCluster(t, devcluster.Options{Nodes: 1})
	g.history = f.history
	args := []string{"restore", "--before-gtid", drop.gtid, "--directory", d.repo}
	g.refused(t, ctx, 0, []int{1}, "is encrypted: name the file", args...)
	args = append(args, "--identity", d.key)
	half, killed := filepath.Join(g.DataDir(0), "restoring.json"), 0
	for range 3 {
		if !killedAt(t, ctx, half, took, append(args, "--config", g.ConfigPath(0))...) {
			break // it was faster
		}
		killed++
		g.refused(t, ctx, 0, []int{1}, "was interrupted", "run")
	}
	t.Logf("%d restores were killed within %.1f s", killed, took.Seconds())
	if _, err := os.Stat(filepath.Join(g.DataDir(0), "identity.json")); err != nil {
		g.must(t, ctx, 0, args...)
	}
	g.refused(t, ctx, 0, []int{1}, "belongs to a node already", args...)
	g.heal(t, ctx)
	g.check(t, ctx)
	g.holdsDropped(t, ctx, drop)
	g.refused(t, ctx, 0, []int{1}, "another history", "archive", "--once", "--directory", d.repo)
	g.awaitMember(t, ctx, g.Name(g.grow(t, ctx, cluster.KindFull)), cluster.KindFull)
	g.check(t, ctx)
	g.refused(t, ctx, 0, []int{1}, "another history", "backup", "--directory", d.repo)
	if out := g.must(t, ctx, 0, "backup", "--new", "--directory", t.TempDir()); !strings.Contains(out, "is the primary: the copy reads all of its data") {
		t.Errorf("a backup of the primary says %q", out)
	}
}

// lossMax is how old a missing transaction may be after the loss of all hosts: the archive's interval is 1 s, and this
// machine is busy. Ticks go on for lossTicks. Within agentDiesWithin after the first tick the agent dies from which the
// archive reads. It is started again, and the archive tries again every 5 s.
const (
	lossMax         = 9 * time.Second
	lossTicks       = 14 * time.Second
	agentDiesWithin = 3 * time.Second
)

// allLost kills everything at once, while an archive runs that has gone on after the death of its agent. Then it
// compares a new cluster with what was acknowledged.
func (f *fixture) allLost(t *testing.T, ctx context.Context, d drill) {
	primary := f.heal(t, ctx)
	local := f.local(t, primary)
	mustDo(t, ctx, local, "CREATE TABLE shop.ticks (id INT PRIMARY KEY)")
	from := (primary + 1) % 3
	if from == d.directory {
		from = (primary + 2) % 3
	}
	archive := exec.CommandContext(ctx, os.Getenv(binaryVariable), "archive", "--config", f.ConfigPath(from))
	if err := archive.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- archive.Wait() }()
	load := f.start(t, 2)
	var acked []time.Time // when the tick of that number was
	agentDies := rand.N(agentDiesWithin)
	for began := time.Now(); time.Since(began) < lossTicks; {
		if time.Since(began) > agentDies {
			agentDies = lossTicks
			if err := errors.Join(f.KillAgent(from), f.Start(ctx, from)); err != nil {
				t.Fatal(err)
			}
		}
		mustDo(t, ctx, local, fmt.Sprintf("INSERT INTO shop.ticks VALUES (%d)", len(acked)))
		acked = append(acked, time.Now())
		time.Sleep(awaited)
	}
	lost := time.Now()
	select {
	case err := <-ended:
		t.Fatalf("the archive has ended: %v", err)
	default:
		_ = archive.Process.Kill()
	}
	for i := range 3 {
		if err := f.KillBoth(i); err != nil {
			t.Fatal(err)
		}
	}
	<-ended
	load.stop(t)
	g := newCluster(t, devcluster.Options{Nodes: 1})
	g.configure(t, 0, d.commands())
	g.must(t, ctx, 0, "restore", "--latest", "--identity", d.key)
	g.heal(t, ctx)
	var n, last int
	if err := g.local(t, 0).QueryRowContext(ctx, "SELECT COUNT(*), MAX(id) FROM shop.ticks").Scan(&n, &last); err != nil {
		t.Fatal(err)
	}
	if n != last+1 {
		t.Errorf("%d ticks up to number %d: some in between are missing", n, last)
	}
	loss := time.Duration(0)
	if n < len(acked) {
		loss = lost.Sub(acked[n])
	}
	t.Logf("%d of %d ticks were restored; what is missing had been acknowledged in the last %v", n, len(acked), loss.Round(time.Millisecond))
	if loss > lossMax {
		t.Errorf("what is missing is too old")
	}
}

// mustDo runs statements.
func mustDo(t *testing.T, ctx context.Context, db *sql.DB, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatalf("%.100s: %v", q, err)
		}
	}
}
