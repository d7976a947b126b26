package transport

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

// TestUnsentMessages: messages that no agent ever sends are refused.
func TestUnsentMessages(t *testing.T) {
	of := func(kind pb.MessageType, change func(*pb.Message)) *pb.Message {
		m := heartbeat(nodeB, nodeA, 1)
		m.Type = &kind
		if change != nil {
			change(m)
		}
		return m
	}
	entries := func(change func(es []*pb.Entry)) *pb.Message {
		m := appendMessage(10, []byte("a"), []byte("b"), []byte("c"))
		change(m.Entries)
		return m
	}
	asked := []*pb.Entry{{Data: []byte("context")}}
	noTerm := func(m *pb.Message) { m.Term = nil }
	ask := func(m *pb.Message) { m.Term, m.Entries = nil, asked }
	for name, c := range map[string]struct {
		m    *pb.Message
		sent bool
	}{
		"append":                 {entries(func([]*pb.Entry) {}), true},
		"no entries":             {appendMessage(10), true},
		"rising terms":           {entries(func(es []*pb.Entry) { es[0].Term = new(uint64(6)) }), true},
		"change of members":      {entries(func(es []*pb.Entry) { es[2].Type = pb.EntryConfChangeV2.Enum() }), true},
		"old change of members":  {entries(func(es []*pb.Entry) { es[2].Type = pb.EntryConfChange.Enum() }), false},
		"negative type of entry": {entries(func(es []*pb.Entry) { es[2].Type = pb.EntryType(-1).Enum() }), false},
		"missing entry":          {entries(func(es []*pb.Entry) { es[1].Index = new(uint64(13)) }), false},
		"repeated entry":         {entries(func(es []*pb.Entry) { es[1].Index = new(uint64(11)) }), false},
		"entry elsewhere":        {entries(func(es []*pb.Entry) { es[0].Index = new(uint64(12)) }), false},
		"falling terms":          {entries(func(es []*pb.Entry) { es[2].Term = new(uint64(6)) }), false},
		"term below the log's":   {entries(func(es []*pb.Entry) { es[0].Term = new(uint64(5)) }), false},
		"term beyond":            {entries(func(es []*pb.Entry) { es[2].Term = new(uint64(8)) }), false},
		"last index of all":      {appendMessage(1<<64-1, []byte("a")), false},
		"heartbeat":              {of(pb.MsgHeartbeat, nil), true},
		"heartbeat, no term":     {of(pb.MsgHeartbeat, noTerm), false},
		"vote, no term":          {of(pb.MsgVote, noTerm), false},
		"vote":                   {of(pb.MsgVote, nil), true},
		"vote of a later term":   {of(pb.MsgVote, func(m *pb.Message) { m.LogTerm = new(uint64(8)) }), false},
		"vote with entries":      {of(pb.MsgVote, func(m *pb.Message) { m.Entries = asked }), false},
		"long context":           {of(pb.MsgHeartbeat, func(m *pb.Message) { m.Context = make([]byte, contextBytesMax+1) }), false},
		"responses":              {of(pb.MsgHeartbeat, func(m *pb.Message) { m.Responses = []*pb.Message{{}} }), false},
		"read index":             {of(pb.MsgReadIndex, ask), true},
		"read index, no entry":   {of(pb.MsgReadIndex, noTerm), false},
		"read index with a term": {of(pb.MsgReadIndex, func(m *pb.Message) { m.Entries = asked }), false},
		"read index, long": {of(pb.MsgReadIndex, func(m *pb.Message) {
			m.Term, m.Entries = nil, []*pb.Entry{{Data: make([]byte, contextBytesMax+1)}}
		}), false},
		"answer to read index": {of(pb.MsgReadIndexResp, func(m *pb.Message) { m.Entries = asked }), true},
		"answer to nothing":    {of(pb.MsgReadIndexResp, nil), false},
		"proposal":             {of(pb.MsgProp, func(m *pb.Message) { m.Entries = asked }), false},
		"snapshot":             {of(pb.MsgSnap, nil), false},
		"campaign":             {of(pb.MsgHup, nil), false},
		"transfer":             {of(pb.MsgTransferLeader, nil), false},
		"storage":              {of(pb.MsgStorageAppendResp, nil), false},
		"unknown type":         {of(1000, nil), false},
		"negative type":        {of(-1, nil), false},
	} {
		if err := unsent(c.m); (err == nil) != c.sent {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnsentMessageEndsConnection: such a message is counted, nothing after it is taken, and the
// peer's next connection works as always.
func TestUnsentMessageEndsConnection(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	a.start(t)
	snap := heartbeat(nodeB, nodeA, 1)
	snap.Type = pb.MsgSnap.Enum()
	conn, _ := rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, classControl)))
	if _, err := conn.Write(encoded(t, classControl, snap, heartbeat(nodeB, nodeA, 2))); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, conn)
	bad := appendMessage(1, []byte("x"))
	bad.From, bad.To, bad.Entries[0].Index = new(uint64(nodeB)), new(uint64(nodeA)), new(uint64(9))
	conn, _ = rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, classAppend)))
	if _, err := conn.Write(encoded(t, classAppend, bad)); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, conn)
	if n := a.Stats().Unexpected; n != 2 {
		t.Errorf("%d messages are counted", n)
	}
	conn, _ = rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, classControl)))
	if _, err := conn.Write(encoded(t, classControl, heartbeat(nodeB, nodeA, 3))); err != nil {
		t.Fatal(err)
	}
	if m := within(t, a.raft, "the next message"); m.GetCommit() != 3 {
		t.Errorf("received %v", m)
	}
}
