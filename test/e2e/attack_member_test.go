package e2e

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/raft/frame"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// takeOver kills a replica, unless one is down, so that the attacker has its address and its key.
func (f *attacked) takeOver(t *testing.T, ctx context.Context) (taken int, others []int) {
	t.Helper()
	for i := range f.Len() {
		if f.AgentPID(i) == 0 {
			return i, f.others(i)
		}
	}
	taken = f.others(f.heal(t, ctx))[0]
	if err := f.KillBoth(taken); err != nil {
		t.Fatal(err)
	}
	return taken, f.others(taken)
}

// impostor answers at the address of a node that is down, in plain text and with a key of its own. It tells
// the others that they must leave, must make their data again, or were left behind.
func (f *attacked) impostor(t *testing.T, ctx context.Context) {
	taken, others := f.takeOver(t, ctx)
	var orders [][]byte
	var marks []mark
	for _, to := range others {
		orders = append(orders, f.ordersFor(t, to)...)
		marks = append(marks, f.mark(t, to))
	}
	heard := f.impersonate(t, ctx, taken, others, orders, func() {
		primary, err := f.WaitPrimary(ctx, taken)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range others {
			if i != primary {
				f.starts(t, ctx, i)
			}
		}
	})
	if heard > 0 {
		t.Errorf("%d connections said who dials", heard)
	}
	for _, m := range marks {
		f.logged(t, ctx, m, `msg="cannot connect to peer" peer=`+f.Name(taken), 40)
		if len(f.since(t, m, "which is not the key of node")) == 0 {
			t.Errorf("the log of %s does not say that another key answers", f.Name(m.node))
		}
	}
}

// ordersFor are rejections with which a node leaves, makes its data again, begins again or waits for somebody, if it
// believes them.
func (f *attacked) ordersFor(t *testing.T, to int) (all [][]byte) {
	instance := f.claimOf(t, to).Instance
	orders := []string{fmt.Sprintf(`"state_version":%d,"instance":%q}`, uint64(math.MaxUint64), instance),
		fmt.Sprintf(`"state_version":%d,"instance":"00112233445566778899aabbccddeeff"}`, uint64(1<<40))}
	for _, code := range []byte{codeRebuild, codeReseed} {
		for _, order := range orders {
			all = append(all, withCRC(code, []byte(`{"text":"begin again",`+order)))
		}
	}
	return append(all,
		withCRC(codeRemoved, []byte(`{"text":"you were removed"}`)),
		withCRC(codeRecovered, []byte(`{"text":"left behind","recovery":{"version":1099511627776,"cluster":"dev","node":"x","at":"2030-01-01T00:00:00Z"}}`)),
		withCRC(codeEmpty, []byte(`{"text":"the data directory here is empty"}`)),
		withCRC(codeKey, []byte(`{"text":"that is not your key"}`)),
	)
}

// starts ends an agent and starts it again: right after its start it knows least.
func (f *attacked) starts(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	had := f.claimOf(t, i)
	if err := f.Terminate(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitReady(ctx, i); err != nil {
		t.Fatal(err)
	}
	if now := f.claimOf(t, i); now != had {
		t.Errorf("%+v was %+v", now, had)
	}
}

// impersonate answers at the address of a node until each order was given in plain text and with TLS, and then
// until more returns. It returns how many callers have said who they are.
func (f *attacked) impersonate(t *testing.T, ctx context.Context, taken int, others []int, orders [][]byte, more func()) int64 {
	t.Helper()
	key, err := nodekey.New()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", f.PeerAddr(taken))
	if err != nil {
		t.Fatal(err)
	}
	var heard, came atomic.Int64
	var serving sync.WaitGroup
	serving.Go(func() {
		for n := 0; ; n++ {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if answer(conn, n%2 == 0, *key.Certificate(), orders[n/2%len(orders)]) {
				heard.Add(1)
			}
			came.Add(1)
		}
	})
	f.underAttack(t, ctx, others, func() {
		want := int64(2 * len(orders))
		if err := devcluster.Poll(ctx, "the others have come to the impostor", func(context.Context) (bool, string, error) {
			n := came.Load()
			return n >= want, fmt.Sprintf("%d times", n), nil
		}); err != nil {
			t.Error(err)
		}
	})
	more()
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	serving.Wait()
	return heard.Load()
}

// answer gives an order to a caller, and tells whether the caller has said who it is.
func answer(conn net.Conn, plain bool, cert tls.Certificate, order []byte) (heard bool) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if !plain {
		conn = tls.Server(conn, &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{cert}})
	}
	first := make([]byte, 4)
	_, _ = io.ReadFull(conn, first)
	_, _ = conn.Write(order)
	return string(first) == "QRTE"
}

// emptied comes as a node that is down and says that it has lost its data. The others believe that, and rebuild the
// node, only if the caller has the node's key. They do not listen to anybody else.
func (f *attacked) emptied(t *testing.T, ctx context.Context) {
	taken, others := f.takeOver(t, ctx)
	had := f.claimOf(t, taken)
	as := had.emptied()
	f.underAttack(t, ctx, others, func() {
		f.awaitAway(t, ctx, taken, others[0], 11*time.Second) // from 10 s on it may be rebuilt
		for n, to := range others {
			another, id := others[1-n], f.claimOf(t, to).NodeID
			for class := classControl; class <= classRead; class++ {
				m, a, says := f.mark(t, to), attackerAt(24+n, int(class)), as.hello(class, id)
				f.toldNothing(t, ctx, a, to, attempt{"plain, without data", nil, says})
				f.toldNothing(t, ctx, a, to, attempt{"with an unknown key, without data", stranger(t), says})
				if told := a.hears(t, ctx, f.PeerAddr(to), f.member(t, another), says); told.code != codeKey {
					t.Errorf("%s says %d, %s to another member", f.Name(to), told.code, told.text)
				}
				f.logged(t, ctx, m, "remote="+a.String()+":", 3)
			}
			if told := attackerAt(26, n+1).hears(t, ctx, f.PeerAddr(to), f.member(t, taken), as.hello(classCall, id)); told.code != codeReseed {
				t.Errorf("%s says %d, %s to who has the key and only asks: it would not have it rebuilt", f.Name(to), told.code, told.text)
			}
		}
		tried := f.awaitAway(t, ctx, taken, others[0], 0)
		f.awaitAway(t, ctx, taken, others[0], tried+3*time.Second) // a leader looks each second
	})
	f.heal(t, ctx)
	if now := f.claimOf(t, taken); now != had {
		t.Errorf("%+v was %+v", now, had)
	}
}

// awaitAway waits until a node was not heard for so long, and returns for how long it was not heard. If the agent that
// is asked was started after the node went down, it counts from the begin of the waiting.
func (f *attacked) awaitAway(t *testing.T, ctx context.Context, away, on int, long time.Duration) (age time.Duration) {
	t.Helper()
	began := time.Now()
	if err := devcluster.Poll(ctx, fmt.Sprintf("%s is away for %v", f.Name(away), long), func(ctx context.Context) (bool, string, error) {
		st, err := f.Status(ctx, on)
		if err != nil {
			return false, err.Error(), nil
		}
		if age = time.Duration(st.Nodes[away].AgeMs) * time.Millisecond; st.Nodes[away].HeardAs() == "" {
			age = time.Since(began)
		}
		return age >= long, fmt.Sprint(age), nil
	}); err != nil {
		t.Fatal(err)
	}
	return age
}

// message is a frame with a message of Raft's.
func message(m *pb.Message) []byte {
	payload, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return framed(1, payload)
}

func framed(kind uint8, payload []byte) []byte {
	b := append(make([]byte, frame.HeaderBytes), payload...)
	frame.Format{Magic: 0x4651, Version: 1}.Fill(b, kind)
	return b
}

// send sends a frame in the name of another node. The victim must end the connection.
func (f *attacked) send(t *testing.T, ctx context.Context, as, to int, class byte, what string, says []byte) {
	t.Helper()
	conn, err := attackerAt(5, to+1).open(ctx, f.PeerAddr(to), f.member(t, as), f.claimOf(t, as).hello(class, f.claimOf(t, to).NodeID))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if told := readGreeting(conn); told.code != 0 {
		t.Fatalf("%s refuses its member: %d, %s", f.Name(to), told.code, told.text)
	}
	if _, err := conn.Write(says); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: %s goes on with the connection", what, f.Name(to))
	}
}

// brokenMember has a member's key, and sends messages that would end a node: at once, when it commits, or when terms run
// out.
func (f *attacked) brokenMember(t *testing.T, ctx context.Context) {
	taken, others := f.takeOver(t, ctx)
	f.underAttack(t, ctx, others, func() {
		for _, to := range others {
			m := f.mark(t, to)
			for what, bad := range f.malformed(t, taken, to) {
				f.send(t, ctx, taken, to, bad[0], what, bad[1:])
			}
			f.logged(t, ctx, m, "closed connection from peer", corruptLinesMax)
		}
		for round := range messagesBroken {
			if round > 0 { // until then nothing of the member is taken, nor refused
				time.Sleep(refusedFor)
			}
			for _, to := range others {
				what, bad := f.broken(t, ctx, taken, to, round)
				m := f.mark(t, to)
				f.send(t, ctx, taken, to, classControl, what, message(bad))
				f.logged(t, ctx, m, "a member is broken: ", 1)
			}
		}
	})
	f.heal(t, ctx)
}

const (
	// corruptLinesMax bounds the lines about one address in a minute (package strangers).
	corruptLinesMax = 4
	// refusedFor is how long a node accepts nothing from a member that it has refused: four election timeouts of 1 s.
	refusedFor = 4500 * time.Millisecond
	// messagesBroken is how many the method broken has.
	messagesBroken = 3
)

// malformed are frames that no agent sends, each behind the class of its connection.
func (f *attacked) malformed(t *testing.T, as, to int) map[string][]byte {
	from, node := f.claimOf(t, as).NodeID, f.claimOf(t, to).NodeID
	raft := func(kind pb.MessageType, term uint64, entries ...*pb.Entry) *pb.Message {
		return &pb.Message{Type: kind.Enum(), From: &from, To: &node, Term: &term, Entries: entries}
	}
	other := raft(pb.MsgHeartbeat, 1)
	other.From = new(from + 1)
	wrongCRC := message(raft(pb.MsgHeartbeat, 1))
	wrongCRC[frame.HeaderBytes-1]++
	tooLong := framed(3, nil)
	binary.LittleEndian.PutUint32(tooLong[4:], 1<<31)
	manyEntries := make([]byte, 40)
	binary.LittleEndian.PutUint32(manyEntries[32:], math.MaxUint32)
	snapshot := raft(pb.MsgSnap, 1)
	snapshot.Snapshot = &pb.Snapshot{}
	all := map[string][]byte{
		"a local message":          message(raft(pb.MsgHup, 0)),
		"a heartbeat without term": message(raft(pb.MsgHeartbeat, 0)),
		"a message of another's":   message(other),
		"a negative type":          message(raft(pb.MessageType(-1), 1)),
		"a wrong CRC":              wrongCRC,
		"a frame of 2 GiB":         tooLong,
		"an unknown frame":         framed(99, []byte("x")),
		"an append for control":    framed(2, make([]byte, 40)),
		"no frame":                 []byte("GET / HTTP/1.1\r\n"),
	}
	for what := range all {
		all[what] = append([]byte{classControl}, all[what]...)
	}
	for what, b := range map[string][]byte{
		"a snapshot":         message(snapshot),
		"a proposal":         message(raft(pb.MsgProp, 0, &pb.Entry{Data: []byte("x")})),
		"2^32 entries":       framed(2, manyEntries),
		"an old conf change": message(raft(pb.MsgApp, 1, &pb.Entry{Term: new(uint64(1)), Index: new(uint64(1)), Type: pb.EntryConfChange.Enum()})),
	} {
		all[what] = append([]byte{classAppend}, b...)
	}
	return all
}

// broken returns one of some messages that have the form of what agents send.
func (f *attacked) broken(t *testing.T, ctx context.Context, as, to, which int) (what string, m *pb.Message) {
	n := f.status(t, ctx, to)
	beyond := n.LogLast + 1<<30
	m = &pb.Message{From: new(f.claimOf(t, as).NodeID), To: new(f.claimOf(t, to).NodeID), Term: new(n.Term + 1)}
	switch which {
	case 0:
		m.Type, m.Commit = pb.MsgHeartbeat.Enum(), &beyond
		return "a commit beyond the log", m
	case 1:
		m.Type, m.Term, m.Index, m.LogTerm = pb.MsgVote.Enum(), new(uint64(math.MaxUint64)), &beyond, new(n.Term)
		m.Context = []byte("CampaignTransfer")
		return "the last term", m
	}
	m.Type, m.Index, m.LogTerm = pb.MsgApp.Enum(), &beyond, new(n.Term)
	m.Entries = []*pb.Entry{{Term: new(n.Term + 1), Index: new(beyond + 1), Data: entry.AppendHeader(nil, entry.Header{Kind: 99, Term: n.Term + 1})}}
	return "an entry that nobody can read", m
}
