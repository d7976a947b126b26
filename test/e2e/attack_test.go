package e2e

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// TestAttack attacks a cluster over the network, in the ways of docs/security.md, while writers
// write: by listening, from addresses without a key, with a key that is not enough, at the address
// of a node that is down, and with a member's key, of a node that is down and of a node that runs. The attacker learns
// nothing, nothing is lost, no node goes down, and the node's log has a few lines about each attack.
func TestAttack(t *testing.T) {
	beside(t)
	f := newAttacked(t, false)
	f.scenario(t, "Listener", f.listener)
	f.scenario(t, "NoKey", f.noKey)
	f.scenario(t, "NoPassword", f.noPassword)
	f.scenario(t, "AnothersKey", f.anothersKey)
	f.scenario(t, "Impostor", f.impostor)
	f.scenario(t, "EmptyDirectory", f.emptied)
	f.scenario(t, "BrokenMember", f.brokenMember)
	f.scenario(t, "StolenKey", f.stolenKey)
	f.scenario(t, "StolenSeed", f.stolenSeed)
	f.scenario(t, "HeldStreams", f.heldStreams)
	f.scenario(t, "RemovedMember", f.removedMember)
}

// attacked is a cluster whose nodes have all ports, and that listens to its own agents.
type attacked struct {
	*readersFixture
	// plain: members come without TLS.
	plain bool
	// wireBytes have passed between the agents, wireMarkers pieces of that had the marker of a row.
	wireBytes, wireMarkers atomic.Int64
	marker                 string
	// terms is how many elections there were in attacks.
	terms uint64
}

func newAttacked(t *testing.T, plain bool) *attacked {
	f := &attacked{plain: plain, marker: "row " + rand.Text()}
	f.readersFixture = &readersFixture{fixture: newCluster(t, devcluster.Options{Nodes: 3, Network: true, PlainPeers: plain, Wire: func(b []byte) {
		f.wireBytes.Add(int64(len(b)))
		if bytes.Contains(b, []byte(f.marker)) {
			f.wireMarkers.Add(1)
		}
	}})}
	password := filepath.Join(f.Dir(), "password")
	if err := os.WriteFile(password, []byte(readerPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range f.Len() {
		f.addReaders(t, i, password)
	}
	f.createTable(t, scenarioContext(t))
	return f
}

// vital is what no attack may change of a node.
type vital struct {
	Name                 string
	AgentPID, MysqldPID  int
	Instance, ServerUUID string
	Role                 status.Role
	Term                 uint64
}

// vitals returns the vital values of nodes, once they are settled: a lease that runs out because the machine is busy has
// nothing to do with an attack.
func (f *attacked) vitals(t *testing.T, ctx context.Context, nodes []int) (all []vital) {
	t.Helper()
	if err := devcluster.Poll(ctx, "the nodes are settled", func(ctx context.Context) (bool, string, error) {
		all = nil
		for _, i := range nodes {
			n := f.status(t, ctx, i)
			if n.Role != status.RolePrimary && n.Role != status.RoleReplica {
				return false, fmt.Sprintf("%s is %s: %s", f.Name(i), n.Role, n.Reason), nil
			}
			all = append(all, vital{f.Name(i), f.AgentPID(i), n.MysqldPID, f.claimOf(t, i).Instance, n.ServerUUID, n.Role, n.Term})
		}
		return true, "", nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// attackTermsMax bounds the elections in all attacks together. A machine that stands still causes one now and then. An
// attack that forces elections would cause one each time.
const attackTermsMax = 6

// same fails the test unless nodes are as they were. Only the node restarted may have another mysqld; -1 = none may.
func (f *attacked) same(t *testing.T, ctx context.Context, nodes []int, before []vital, restarted int) {
	t.Helper()
	after := f.vitals(t, ctx, nodes)
	terms := after[0].Term - before[0].Term
	f.terms += terms
	for n, i := range nodes {
		if i == restarted || terms > 0 && before[n].Role == status.RolePrimary {
			before[n].MysqldPID = after[n].MysqldPID // deposed, it may have been killed
		}
		if restarted >= 0 || terms > 0 {
			before[n].Role, before[n].Term = after[n].Role, after[n].Term
		}
	}
	if restarted < 0 && terms > 2 || f.terms > attackTermsMax {
		t.Errorf("%d elections in this attack, %d in all", terms, f.terms)
	}
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("the attack has changed nodes (-before +after):\n%s", d)
	}
}

// underAttack attacks nodes while writers write through them.
func (f *attacked) underAttack(t *testing.T, ctx context.Context, nodes []int, attack func()) {
	t.Helper()
	l := f.start(t, 4, nodes...)
	l.awaitAcks(t, ctx, 50)
	before := f.vitals(t, ctx, nodes)
	attack()
	f.same(t, ctx, nodes, before, -1)
	l.awaitAcks(t, ctx, 50)
	l.stop(t)
	f.checkNodes(t, ctx, nodes...)
}

func (f *attacked) all() []int { return []int{0, 1, 2} }

// listener reads all bytes between the agents: commits, a large transaction, a client that came
// to another node than the primary, and a copy of all data. It must not see a row.
func (f *attacked) listener(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	replica := f.others(primary)[0]
	db := openDSN(t, f.DSN(replica), nil)
	table := ledger.Database + ".secret"
	for _, statement := range []string{
		"CREATE TABLE " + table + " (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)",
		fmt.Sprintf("INSERT INTO %s (b) VALUES ('%s')", table, strings.Repeat(f.marker, 1000)),
		fmt.Sprintf("INSERT INTO %s (b) VALUES (REPEAT('%s', 400000))", table, f.marker), // beside the log's entries
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%.60s: %v", statement, err)
		}
	}
	had := f.status(t, ctx, primary).LogCommit
	f.segments(t, ctx)
	f.awaitDurable(t, ctx, f.status(t, ctx, primary).LogCommit-50, f.all()...)
	f.awaitPurged(t, ctx, had, primary, f.others(primary)[1]) // else a copy of the log would do
	uuid := f.status(t, ctx, replica).ServerUUID
	written, seen := f.wireBytes.Load(), f.wireMarkers.Load()
	f.must(t, ctx, primary, "node", "rebuild", f.Name(replica), "--yes")
	if err := f.WaitNode(ctx, replica, "rebuilt", func(n status.Node) bool {
		return n.Role == status.RoleReplica && n.ServerUUID != uuid
	}); err != nil {
		t.Fatal(err)
	}
	own := f.local(t, replica)
	if err := devcluster.Poll(ctx, "the copy has the rows", func(ctx context.Context) (bool, string, error) {
		var rows int
		err := own.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table+" WHERE b LIKE ?", f.marker+"%").Scan(&rows)
		return rows == 2, fmt.Sprintf("%d rows, %v", rows, err), nil
	}); err != nil {
		t.Fatal(err)
	}
	copied := f.wireBytes.Load() - written
	t.Logf("%d MB passed with the rows, %d MB with the copy", written>>20, copied>>20)
	if least := int64(10 << 20); written < least || copied < least || f.status(t, ctx, replica).LogFirst <= had {
		t.Error("that is less than the rows have, or no copy of a mysqld's data: the test has heard nothing")
	}
	if n := f.wireMarkers.Load(); n > 0 {
		t.Errorf("%d pieces had a row in clear, then %d of the copy", seen, n-seen)
	}
}

// noKey comes to the peer port with everything that members say about themselves, but without a member's key.
func (f *attacked) noKey(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	from := f.writeSecret(t, ctx, primary)
	f.underAttack(t, ctx, f.all(), func() {
		for i := range f.Len() {
			as := (i + 1) % f.Len()
			for n, c := range append(f.withoutTLS(t, as, i), f.withoutKey(t, as, i)...) {
				m, a := f.mark(t, i), attackerAt(1, n+1)
				f.toldNothing(t, ctx, a, i, c)
				f.logged(t, ctx, m, "remote="+a.String()+":", 1)
			}
			for n, conf := range []*tls.Config{nil, stranger(t)} {
				if h := f.raid(t, ctx, attackerAt(8, n+1), as, i, conf, from); h != (haul{}) {
					t.Errorf("%s gives away %+v", f.Name(i), h)
				}
			}
		}
	})
}

// attempt is a connection that the cluster must refuse.
type attempt struct {
	name string
	tls  *tls.Config
	says []byte
}

// withoutTLS are the attempts in plain text, as a node, at another one.
func (f *attacked) withoutTLS(t *testing.T, from, at int) (all []attempt) {
	as, to := f.claimOf(t, from), f.claimOf(t, at).NodeID
	all = []attempt{
		{"plain, of another cluster", nil, as.ofAnother().hello(classControl, 0)},
		{"plain HTTP", nil, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")},
		{"no TLS behind its first byte", nil, append([]byte{0x16, 3, 1}, as.hello(classControl, to)...)},
	}
	for class := classControl; class <= classRead; class++ {
		all = append(all, attempt{fmt.Sprintf("plain, as a member for class %d", class), nil, as.hello(class, to)})
	}
	return all
}

// withoutKey are the attempts with TLS.
func (f *attacked) withoutKey(t *testing.T, from, at int) (all []attempt) {
	as, to := f.claimOf(t, from), f.claimOf(t, at).NodeID
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	old := shows(f.certificateOf(t, from))
	old.MaxVersion = tls.VersionTLS12
	all = []attempt{
		{"TLS without a certificate", shows(), as.hello(classControl, to)},
		{"TLS with a key of another kind", shows(selfSigned(t, other)), as.hello(classControl, to)},
		{"TLS 1.2 with a member's key", old, as.hello(classControl, to)},
	}
	for class := classControl; class <= classRead; class++ {
		all = append(all, attempt{fmt.Sprintf("TLS with an unknown key for class %d", class), stranger(t), as.hello(class, to)})
	}
	return all
}

// toldNothing makes an attempt.
func (f *attacked) toldNothing(t *testing.T, ctx context.Context, a attacker, at int, c attempt) {
	t.Helper()
	if c.tls != nil {
		c.tls.VerifyConnection = func(s tls.ConnectionState) error { return saysNothing(s.PeerCertificates[0]) }
	}
	if told := a.hears(t, ctx, f.PeerAddr(at), c.tls, c.says); told.code != -1 {
		t.Errorf("%s: %s says %d, %q", c.name, f.Name(at), told.code, told.text)
	}
}

// selfSigned returns a certificate that contains no names.
func selfSigned(t *testing.T, key crypto.Signer) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// noPassword guesses passwords at the ports for the node's own mysqld, for readers and for clients, and gives
// orders by HTTP.
func (f *attacked) noPassword(t *testing.T, ctx context.Context) {
	f.heal(t, ctx)
	app, _ := f.Application()
	f.underAttack(t, ctx, f.all(), func() {
		for i := range f.Len() {
			for n, c := range []struct{ addr, user, line string }{
				{f.FeedAddr(i), "quorate_feed", "login to the feed failed"},
				{f.addrs[i], "cdc", "login to the feed failed"},
				{f.RouterAddr(i), app, "a client's login was refused"},
			} {
				m, a := f.mark(t, i), attackerAt(2, n+1)
				if err := a.guess(ctx, c.addr, c.user); err == nil {
					t.Errorf("%s is in at %s", c.user, c.addr)
				}
				f.logged(t, ctx, m, c.line, 1)
				f.logged(t, ctx, m, a.String()+":", 1)
			}
			m := f.mark(t, i)
			for _, order := range []string{"fence", "node.remove"} {
				res, err := http.Post("http://"+f.APIAddr(i)+"/control/"+order, "application/json", strings.NewReader(`{"by":"me"}`))
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				if res.StatusCode != http.StatusForbidden {
					t.Errorf("%s by HTTP: %s", order, res.Status)
				}
			}
			f.logged(t, ctx, m, "refused a request at the api port", 2)
		}
	})
}

// guess logs in with a wrong password.
func (a attacker) guess(ctx context.Context, addr, user string) error {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.Passwd, cfg.Logger = "tcp", addr, user, "a guess", &mysql.NopLogger{}
	cfg.DialFunc = func(ctx context.Context, _, addr string) (net.Conn, error) { return a.dial(ctx, addr) }
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	return db.PingContext(ctx)
}

// anothersKey comes with the key of one member in the name of another member.
func (f *attacked) anothersKey(t *testing.T, ctx context.Context) {
	f.heal(t, ctx)
	f.underAttack(t, ctx, f.all(), func() {
		for i := range f.Len() {
			as, key := f.claimOf(t, (i+1)%f.Len()), (i+2)%f.Len()
			want := greeting{codeKey, fmt.Sprintf(`{"text":"node \"%s\" shows the key of another node: put its own key back"}`, as.Node)}
			for class := classControl; class <= classRead; class++ {
				m, a := f.mark(t, i), attackerAt(3, int(class))
				told := a.hears(t, ctx, f.PeerAddr(i), f.member(t, key), as.hello(class, f.claimOf(t, i).NodeID))
				if told != want {
					t.Errorf("class %d: %s says %d, %s", class, f.Name(i), told.code, told.text)
				}
				f.logged(t, ctx, m, "remote="+a.String()+":", 1)
			}
		}
	})
}

// removedMember: a member removes another member, which any member can do, with a line in the audit log. Then the
// attacker comes with the key of the removed member: it is told that it was removed, and nothing else.
func (f *attacked) removedMember(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	gone, stays := f.others(primary)[0], f.others(primary)[1]
	m, member := f.mark(t, primary), f.claimOf(t, stays)
	if done := attackerAt(9, 40).orders(t, ctx, f.PeerAddr(primary), f.member(t, stays), member.hello(classCall, f.claimOf(t, primary).NodeID),
		"node.remove", fmt.Sprintf(`{"change":{"name":%q}}`, f.Name(gone))); done.Code != control.CodeOK {
		t.Fatalf("%+v", done)
	}
	f.logged(t, ctx, m, `msg="carried out what another node passed on" name=node.remove by=root@somewhere from=`+f.Name(stays), 1)
	for _, i := range []int{primary, stays} {
		f.awaitAudit(t, ctx, i, "remove node "+f.Name(gone))
	}
	if err := f.WaitNode(ctx, gone, "removed", func(n status.Node) bool { return n.Role == status.RoleRemoved }); err != nil {
		t.Fatal(err)
	}
	as := f.claimOf(t, gone)
	want := greeting{codeRemoved, fmt.Sprintf(`{"text":"node \"%s\" was removed from cluster \"%s\""}`, as.Node, as.Cluster)}
	f.underAttack(t, ctx, []int{primary, stays}, func() {
		for n, i := range []int{primary, stays} {
			to := f.claimOf(t, i).NodeID
			for class := classControl; class <= classRead; class++ {
				m, a := f.mark(t, i), attackerAt(6+n, int(class))
				for what, says := range map[string][]byte{
					"to it": as.hello(class, to), "to nobody": as.hello(class, 0), "of another cluster": as.elsewhere().hello(class, to),
				} {
					if told := a.hears(t, ctx, f.PeerAddr(i), f.member(t, gone), says); told != want {
						t.Errorf("class %d %s: %s says %d, %s", class, what, f.Name(i), told.code, told.text)
					}
				}
				f.logged(t, ctx, m, "remote="+a.String()+":", 1)
			}
		}
	})
}
