package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/frame"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// secretTable has the rows that an attacker wants.
const secretTable = ledger.Database + ".secret"

// haul says what an attacker has got from a node.
type haul struct {
	// Name: the cluster's name was told. Member: the caller was taken for a member. Rows of the log came, an
	// Answer to an order.
	Name, Member, Rows, Answer bool
}

// everything is what a member gets.
var everything = haul{Name: true, Member: true, Rows: true, Answer: true}

// writeSecret writes a row, waits until all nodes have it, and returns an index before its entry.
func (f *attacked) writeSecret(t *testing.T, ctx context.Context, primary int) (from uint64) {
	t.Helper()
	db := openDSN(t, f.DSN(primary), nil)
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+secretTable+" (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)"); err != nil {
		t.Fatal(err)
	}
	from = f.status(t, ctx, primary).LogCommit
	done, err := db.ExecContext(ctx, "INSERT INTO "+secretTable+" (b) VALUES (?)", f.marker)
	if err != nil {
		t.Fatal(err)
	}
	id, err := done.LastInsertId()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range f.all() {
		own := f.local(t, i)
		if err := devcluster.Poll(ctx, f.Name(i)+" has the secret", func(ctx context.Context) (bool, string, error) {
			var rows int
			err := own.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+secretTable+" WHERE id = ?", id).Scan(&rows)
			return rows == 1, fmt.Sprint(err), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return from
}

// raid tells what node i gives to a caller that says it is node as and has the key in conf; nil = in plain text.
func (f *attacked) raid(t *testing.T, ctx context.Context, a attacker, as, i int, conf *tls.Config, from uint64) (h haul) {
	t.Helper()
	c, to, addr := f.claimOf(t, as), f.claimOf(t, i).NodeID, f.PeerAddr(i)
	h.Name = strings.Contains(a.hears(t, ctx, addr, conf, c.elsewhere().hello(classCall, to)).text, c.Cluster)
	h.Member = a.hears(t, ctx, addr, conf, c.hello(classCall, to)).code == 0
	_, copied := a.copies(t, ctx, addr, conf, c.hello(classBulk, to), copyFrame(copyEntries, from))
	h.Rows = bytes.Contains(copied, []byte(f.marker))
	h.Answer = a.orders(t, ctx, addr, conf, c.hello(classCall, to), "cluster.set", `{"peer_security":"none"}`).Node != ""
	return h
}

// stolenKey has the key of a replica that runs. As a member it gets all data, and can force elections.
// It does not get what is only for the node's own host, or only for nodes that join, and it can end no node.
func (f *attacked) stolenKey(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	thief, from := f.others(primary)[0], f.writeSecret(t, ctx, primary)
	f.underAttack(t, ctx, f.all(), func() {
		for _, to := range f.others(thief) {
			if h := f.raid(t, ctx, attackerAt(9, to+1), thief, to, f.member(t, thief), from); h != everything {
				t.Errorf("a member gets %+v of %s", h, f.Name(to))
			}
			f.stolenOrders(t, ctx, thief, to, primary)
			f.stolenCopies(t, ctx, thief, to)
		}
	})
	f.election(t, ctx, thief, primary)
}

// stolenOrders gives the orders of operators to a node, by a member's key.
func (f *attacked) stolenOrders(t *testing.T, ctx context.Context, thief, to, primary int) {
	t.Helper()
	remove := fmt.Sprintf(`{"change":{"op":"remove","name":%q}}`, f.Name(primary))
	lead := func(why string) string {
		if to != primary {
			return "does not lead"
		}
		return why
	}
	for _, c := range []struct{ name, args, why string }{
		{"log.purge", `{"retention_size":1}`, "is for the node on which it is asked"},
		{"secrets.rotate", `{}`, "is for the node on which it is asked"},
		{"seed.plan", `{}`, "has a vote and cannot be seeded"},
		{"seed.data", `{}`, "only to a node that joins"},
		{"node.remove", remove, lead("leads: move the primary")},
		{"node.rebuild", strings.Replace(remove, "remove", "rebuild", 1), lead("leads: move the primary")},
		{"node.key", fmt.Sprintf(`{"name":%q,"next_key":%q}`, f.Name(primary), f.keyOf(t, thief)), lead("are not taken from node")},
		{"node.key", fmt.Sprintf(`{"name":%q,"key":%q,"force":true}`, f.Name(primary), f.keyOf(t, thief)), lead("are not taken from node")},
		{"cluster.set", `{"peer_security":"none"}`, lead("peer-security must be")},
		{"switchover", `{"to":"nobody","max_pause_ns":5000000000,"wait_ns":1000000000}`, lead("nobody")},
	} {
		m, a := f.mark(t, to), attackerAt(9, 10+to)
		got := a.orders(t, ctx, f.PeerAddr(to), f.member(t, thief), f.claimOf(t, thief).hello(classCall, f.claimOf(t, to).NodeID), c.name, c.args)
		if got.Code == control.CodeOK || !strings.Contains(got.Error, c.why) {
			t.Errorf("%s of %s at %s: %+v, want %q", c.name, f.Name(thief), f.Name(to), got, c.why)
		}
		if c.why != "does not lead" { // as agents ask each other
			f.logged(t, ctx, m, fmt.Sprintf(`msg="request refused" name=%s by=root@somewhere from=%s`, c.name, f.Name(thief)), 1)
		}
	}
}

// stolenCopies asks a node for copies that the node must refuse, and sends requests that are not valid.
func (f *attacked) stolenCopies(t *testing.T, ctx context.Context, thief, to int) {
	t.Helper()
	says, term := f.claimOf(t, thief).hello(classBulk, f.claimOf(t, to).NodeID), f.status(t, ctx, to).Term
	ask := func(request []byte) (kind byte, text string) {
		kind, all := attackerAt(9, 20+to).copies(t, ctx, f.PeerAddr(to), f.member(t, thief), says, request)
		return kind, string(all)
	}
	for why, request := range map[string][]byte{
		fmt.Sprintf("does not lead in term %d,", term):      copyFrame(copyPut, term, 1),
		fmt.Sprintf("does not lead in term %d,", term+1000): copyFrame(copyPut, term+1000, 1),
		"the stage is not here":                             copyFrame(copyGet, term, 1<<40),
		"this node is not the source":                       copyFrame(copyFollow, 1),
	} {
		if kind, text := ask(request); kind != copyRefused || !strings.Contains(text, why) {
			t.Errorf("%s answers type %d, %q, want %q", f.Name(to), kind, text, why)
		}
	}
	wrongCRC := copyFrame(copyGet, term, 1)
	wrongCRC[frame.HeaderBytes-1]++
	for what, bad := range map[string][]byte{
		"a wrong CRC":       wrongCRC,
		"a frame of 2 GiB":  {0x51, 0x42, 1, copyPut, 0, 0, 0, 0x80, 0, 0, 0, 0},
		"half a stage's id": copyFrame(copyPut, term),
		"data for nothing":  copyFrame(copyData, 1),
		"an unknown frame":  copyFrame(99),
		"no frame":          []byte("GET / HTTP/1.1\r\n"),
	} {
		m := f.mark(t, to)
		if kind, text := ask(bad); kind != 0 && kind != copyRefused {
			t.Errorf("%s: %s answers type %d, %q", what, f.Name(to), kind, text)
		}
		f.logged(t, ctx, m, fmt.Sprintf(`msg="bulk stream from peer failed" node=%d `, f.claimOf(t, thief).NodeID), 2)
	}
}

// election lets a member say that it leads the next term. The others hold an election, and nothing else happens.
func (f *attacked) election(t *testing.T, ctx context.Context, thief, primary int) {
	t.Helper()
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 50)
	before, was := f.vitals(t, ctx, f.all()), f.status(t, ctx, primary).Term
	as, to := f.claimOf(t, thief), f.claimOf(t, primary).NodeID
	claims := message(&pb.Message{Type: pb.MsgHeartbeat.Enum(), From: &as.NodeID, To: &to, Term: new(was + 1)})
	if err := devcluster.Poll(ctx, "another term", func(ctx context.Context) (bool, string, error) {
		n := f.status(t, ctx, primary)
		if n.Term > was {
			return true, "", nil
		}
		conn := attackerAt(9, 30).welcomed(t, ctx, f.PeerAddr(primary), f.member(t, thief), as.hello(classControl, to))
		if conn == nil {
			return false, "", errors.New("the member is refused")
		}
		defer conn.Close() // the member that it says it is dials again, which ends it, too
		_, err := conn.Write(claims)
		return false, fmt.Sprintf("term %d, %v", n.Term, err), nil
	}); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 50)
	f.heal(t, ctx)
	l.stop(t)
	f.check(t, ctx)
	after := f.vitals(t, ctx, f.all())
	for n := range after {
		if after[n].AgentPID != before[n].AgentPID || after[n].Instance != before[n].Instance || after[n].ServerUUID != before[n].ServerUUID {
			t.Errorf("%+v was %+v", after[n], before[n])
		}
	}
}
