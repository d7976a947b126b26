package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestAttackPlain attacks a cluster that began without keys, on its way to them. Without keys it gives away
// all that TestAttack wants, which shows that those attacks can succeed. While it changes over (peer-security
// both), it tells nothing to a caller with an unknown key, but still takes a caller in plain text for a member:
// that is all that an attacker gets then. Once it requires keys, an attacker gets nothing.
func TestAttackPlain(t *testing.T) {
	beside(t)
	f := newAttacked(t, true)
	f.scenario(t, "None", f.givesAway)
	f.scenario(t, "Both", f.changesOver)
	f.scenario(t, "BothStolenKey", f.stolenKey)
	f.scenario(t, "BothBrokenMember", f.brokenMember)
	f.scenario(t, "Require", f.closes)
}

// givesAway: the cluster gives everything away to an attacker who listens, who connects, and who answers.
func (f *attacked) givesAway(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	f.inPlain(t, ctx, primary)
	if f.wireMarkers.Load() == 0 {
		t.Error("who listens sees no row")
	}
	taken, others := f.takeOver(t, ctx)
	if heard := f.impersonate(t, ctx, taken, others, [][]byte{nil}, func() {}); heard == 0 {
		t.Error("nobody says to an impostor who dials")
	}
	f.wiped(t, ctx, taken, others)
}

// wiped comes as a node that is down and says that it has lost its data. When the real node comes back, its good data are
// given up.
func (f *attacked) wiped(t *testing.T, ctx context.Context, taken int, others []int) {
	t.Helper()
	had := f.claimOf(t, taken)
	f.awaitAway(t, ctx, taken, others[0], 11*time.Second)
	for n, to := range others {
		says := had.emptied().hello(classControl, f.claimOf(t, to).NodeID)
		if told := attackerAt(24, n+1).hears(t, ctx, f.PeerAddr(to), nil, says); told.code != codeReseed {
			t.Errorf("%s says %d, %s", f.Name(to), told.code, told.text)
		}
	}
	f.awaitAudit(t, ctx, others[0], "rebuild node "+f.Name(taken)+": it has come back with an empty data directory")
	f.heal(t, ctx)
	f.awaitMember(t, ctx, f.Name(taken), cluster.KindFull)
	if f.claimOf(t, taken).Instance == had.Instance {
		t.Errorf("%s has the data that it had", f.Name(taken))
	}
}

// inPlain: each node takes a caller in plain text for a member.
func (f *attacked) inPlain(t *testing.T, ctx context.Context, primary int) {
	t.Helper()
	from := f.writeSecret(t, ctx, primary)
	f.underAttack(t, ctx, f.all(), func() {
		for i := range f.Len() {
			a, as := attackerAt(20, i+1), f.claimOf(t, (i+1)%f.Len())
			if h := f.raid(t, ctx, a, (i+1)%f.Len(), i, nil, from); h != everything {
				t.Errorf("%s gives away %+v", f.Name(i), h)
			}
			wrong := as
			wrong.Instance = "00112233445566778899aabbccddeeff"
			if told := a.hears(t, ctx, f.PeerAddr(i), nil, wrong.hello(classCall, f.claimOf(t, i).NodeID)); !strings.Contains(told.text, as.Instance) {
				t.Errorf("%s does not tell which data directory %s has: %d, %s", f.Name(i), as.Node, told.code, told.text)
			}
		}
	})
}

// changesOver: an attacker who listens sees no rows any more, and callers with unknown keys are told nothing. Plain
// text is accepted as before, and there is no way back.
func (f *attacked) changesOver(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	f.awaitSecurity(t, ctx, primary, "both")
	for _, i := range f.all() {
		if err := f.WaitNode(ctx, i, "it has no connection without TLS", func(n status.Node) bool { return len(n.PlainPeers) == 0 }); err != nil {
			t.Fatal(err)
		}
	}
	seen := f.wireMarkers.Load()
	f.inPlain(t, ctx, primary)
	if n := f.wireMarkers.Load() - seen; n > 0 {
		t.Errorf("who listens sees %d rows", n)
	}
	from := f.writeSecret(t, ctx, primary)
	f.underAttack(t, ctx, f.all(), func() {
		for i := range f.Len() {
			as := (i + 1) % f.Len()
			for n, c := range f.withoutKey(t, as, i) {
				m, a := f.mark(t, i), attackerAt(21, n+1)
				f.toldNothing(t, ctx, a, i, c)
				f.logged(t, ctx, m, "remote="+a.String()+":", 1)
			}
			if h := f.raid(t, ctx, attackerAt(22, i+1), as, i, stranger(t), from); h != (haul{}) {
				t.Errorf("%s gives away %+v", f.Name(i), h)
			}
		}
	})
}

// closes: connections that were opened in plain text end, and later callers in plain text are told nothing.
func (f *attacked) closes(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	as := f.claimOf(t, f.others(primary)[0])
	stream := attackerAt(23, 1).welcomed(t, ctx, f.PeerAddr(primary), nil, as.hello(classRoute, f.claimOf(t, primary).NodeID))
	if stream == nil {
		t.Fatal("a plain stream is refused before its time")
	}
	defer stream.Close()
	f.awaitSecurity(t, ctx, primary, "require")
	f.plain = false
	if err := stream.SetDeadline(time.Now().Add(3 * time.Second)); err != nil { // mysqld ends it after 10 s
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, stream); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a plain stream goes on")
	}
	f.noKey(t, ctx)
	f.refused(t, ctx, primary, []int{2}, "cannot go back", "cluster", "set", "--peer-security", "both")
}
