package transport

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

// rejections are greetings that node a, which knows b and c, refuses.
var rejections = []struct {
	name   string
	change func(*hello)
	want   RejectedError
}{
	{
		"another cluster of the same name", func(h *hello) { h.id.ClusterID = 0xc2 },
		RejectedError{Code: CodeCluster, Text: `node "b" belongs to cluster "shop" (id c2), this is cluster "shop" (id c1)`},
	},
	{
		"cluster comes before target", func(h *hello) { h.id.ClusterID, h.id.ClusterName, h.target = 0xc2, "test", 9 },
		RejectedError{Code: CodeCluster, Text: `node "b" belongs to cluster "test" (id c2), this is cluster "shop" (id c1)`},
	},
	{
		"wrong target", func(h *hello) { h.target = nodeC },
		RejectedError{Code: CodeTarget, Text: `node "b" looked for node 3 at this address, where node "a" (id 1) answers`},
	},
	{
		"our id", func(h *hello) { h.id.Node = nodeA },
		RejectedError{Code: CodeDuplicate, Text: `the node at this address has the name "a" and the id 1 itself: two nodes cannot share one of them`},
	},
	{
		"our name", func(h *hello) { h.id.NodeName = "a" },
		RejectedError{Code: CodeDuplicate, Text: `the node at this address has the name "a" and the id 1 itself: two nodes cannot share one of them`},
	},
	{
		"unknown member", func(h *hello) { h.id.Node, h.id.NodeName = 9, "x" },
		RejectedError{Code: CodeUnknown, Text: `node "x" (id 9) is not a member of cluster "shop" as node "a" knows it`},
	},
	{
		"known id with another name", func(h *hello) { h.id.NodeName = "bee" },
		RejectedError{Code: CodeUnknown, Text: `node id 2 is called "b" here, not "bee"`},
	},
	{
		"instance that the agent refuses", func(h *hello) { h.id.Instance = [16]byte{0xff} },
		RejectedError{Code: CodePeer, Text: "node b has another data directory than before"},
	},
	{
		"unknown class", func(h *hello) { h.class = 9 },
		RejectedError{Code: CodeMalformed, Text: `node "a" could not read the greeting: transport: malformed greeting: unknown class-9`},
	},
}

func pinInstance(id Identity) error {
	if id.Instance != identity(id.Node).Instance {
		return errors.New("node " + id.NodeName + " has another data directory than before")
	}
	return nil
}

func TestRejectedGreetings(t *testing.T) {
	a := newNode(t, nodeA, nodeB, nodeC)
	a.check = pinInstance
	a.start(t)
	for i, c := range rejections {
		t.Run(c.name, func(t *testing.T) {
			h := helloFrom(nodeB, nodeA, classControl)
			c.change(&h)
			conn, g := rawDial(t, a, encodeHello(h))
			got, err := parseRejection(g)
			if diff := cmp.Diff(&c.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
			expectClosed(t, conn)
			if got := a.Stats().HandshakesRejected; got != uint64(i+1) {
				t.Errorf("HandshakesRejected = %d, want %d", got, i+1)
			}
		})
	}
	if got := a.Stats().HandshakesFailed; got != 0 {
		t.Errorf("HandshakesFailed = %d", got)
	}
}

func TestOtherProtocolVersionIsToldSo(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	a.start(t)
	// The body of a future version means nothing to this one.
	_, g := rawDial(t, a, appendGreeting(nil, greeting{version: 5, most: 6, word: 77, body: []byte("future")}))
	want := RejectedError{Code: CodeVersion, Text: `the dialling node speaks protocol versions 5 to 6, and node "a" (quorate 1.0) speaks protocol versions 1 to 4`}
	if diff := cmp.Diff(want, RejectedError{Code: Code(g.word), Text: string(g.body)}); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestWhatIsNoGreetingIsClosedAndCounted(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	a.start(t)
	good := encodeHello(helloFrom(nodeB, nodeA, classControl))
	damaged := append([]byte{}, good...)
	damaged[len(damaged)-1] ^= 1
	huge := append([]byte{}, good[:greetingHeaderBytes]...)
	huge[11] = 1 // a length of 16 MiB
	for i, raw := range [][]byte{[]byte("GET / HTTP/1.1\r\n"), damaged, huge} {
		conn, err := netDial(t, a, raw)
		if err != nil {
			t.Fatal(err)
		}
		expectClosed(t, conn)
		if got := a.Stats().HandshakesFailed; got != uint64(i+1) {
			t.Errorf("after %q: HandshakesFailed = %d, want %d", raw, got, i+1)
		}
	}
}

func TestSilentDiallerIsClosed(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	a.tune.handshakeTimeout /= 100
	a.start(t)
	conn, err := netDial(t, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	expectClosed(t, conn)
}

// A wrong configuration must show up on both sides, where a person looks: the
// dialling node gets the sentence through Handler.Rejected.
func TestRejectionReachesTheDialler(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	b.cfg.Identity.ClusterID, b.cfg.Identity.ClusterName = 0xc2, "test"
	b.door.Self = b.cfg.Identity
	introduce(a, b)
	a.start(t)
	b.start(t)
	for _, c := range []struct {
		n        *node
		by, want string
	}{
		{a, "b", `node "a" belongs to cluster "shop" (id c1), this is cluster "test" (id c2)`},
		{b, "a", `node "b" belongs to cluster "test" (id c2), this is cluster "shop" (id c1)`},
	} {
		got := within(t, c.n.rejected, "Rejected")
		if diff := cmp.Diff(&RejectedError{Code: CodeCluster, Text: c.want, By: c.by}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	if s := a.Stats().Peers[0]; s.Control.Connects+s.Append.Connects != 0 {
		t.Errorf("node a connected to a node of another cluster: %+v", s)
	}
}

// A node with an empty data directory asks its peers before it writes anything.
func TestIntroduce(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	introduce(a, b)
	b.start(t)
	if i := a.Introduce(t.Context()); i.Rejections != nil || i.Silent != nil || !slices.Equal(i.Welcomes, []string{"b"}) {
		t.Fatalf("a welcome node is refused: %+v", i)
	}
	a.cfg.Identity.ClusterID = 0xc2
	a.door.Self = a.cfg.Identity
	if i := a.Introduce(t.Context()); len(i.Rejections) != 1 || i.Rejections[0].Code != CodeCluster || i.Silent != nil {
		t.Fatalf("got %+v, want the refusal of another cluster's node", i)
	}
	b.stop()
	if i := a.Introduce(t.Context()); i.Rejections != nil || len(i.Silent) != 1 {
		t.Fatalf("a node that does not answer refuses: %+v", i)
	}
}

// knocked is a Checker that judges nodes that are no peers, and notes their names.
type knocked struct{ by *[]string }

func (knocked) CheckPeer(Identity) error { return nil }

func (k knocked) CheckUnknown(id Identity) error {
	*k.by = append(*k.by, id.NodeName)
	return &RejectedError{Code: CodeEmpty, Text: "who are you"}
}

// TestUnknownIsAsked: a Checker is asked about a node of the same cluster that is no peer, and about no other node.
func TestUnknownIsAsked(t *testing.T) {
	id := func(name string, node cluster.NodeID, c uint64) Identity {
		return Identity{ClusterID: c, Node: node, NodeName: name}
	}
	var by []string
	d := &Door{Self: id("a", 1, 7), Checker: knocked{&by}, Peer: func(id cluster.NodeID) (Peer, bool) {
		return Peer{ID: 2, Name: "b"}, id == 2
	}}
	for _, c := range []struct {
		target cluster.NodeID
		id     Identity
		want   Code
	}{
		{1, id("b", 2, 7), codeAccepted}, {1, id("c", 3, 7), CodeEmpty}, {1, id("d", 4, 8), CodeCluster}, {9, id("e", 5, 7), CodeTarget},
	} {
		got := codeAccepted
		if r := d.Admit(c.target, c.id, "", false); r != nil {
			got = r.Code
		}
		if got != c.want {
			t.Errorf("%s: code %d, want %d", c.id.NodeName, got, c.want)
		}
	}
	if !slices.Equal(by, []string{"c"}) {
		t.Errorf("asked about %v", by)
	}
}

// TestHeard: a node that wants to know who dials hears the name of a node that it refuses, over TLS also with a key that
// no member has. It hears no node of another cluster, and once it does not want to know, such a key says nothing.
func TestHeard(t *testing.T) {
	for _, security := range []cluster.PeerSecurity{cluster.PeersPlain, cluster.PeersRequire} {
		for _, c := range []struct {
			name    string
			prepare func(a, b *node)
			want    Code // of the refusal
			silent  bool // node b hears nothing
		}{
			{"a member", func(_, _ *node) {}, codeAccepted, false},
			{"no member", func(_, b *node) { b.SetPeers(nil) }, CodeUnknown, false},
			{"another cluster", func(a, b *node) {
				a.door.Self.ClusterID, b.door.Self.ClusterID = 7, 8
				a.cfg.Identity.ClusterID, b.cfg.Identity.ClusterID = 7, 8
			}, CodeCluster, true},
			{"nobody wants to know", func(_, b *node) { b.SetPeers(nil); b.hears = nil }, CodeUnknown, true},
		} {
			a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
			introduce(a, b)
			secured(t, security, a, b)
			b.hears = func() bool { return true }
			c.prepare(a, b)
			b.start(t)
			want := heardCall{"a", "127.0.0.1", c.want}
			if c.want == CodeUnknown && security == cluster.PeersRequire {
				want.code = CodeKey
			}
			refused := want.code != codeAccepted
			if i := a.Introduce(t.Context()); (len(i.Rejections) == 1) != refused || refused && i.Rejections[0].Code != want.code {
				t.Errorf("%s, %s: %+v", security, c.name, i)
			}
			select {
			case got := <-b.callers:
				if c.silent || got != want {
					t.Errorf("%s, %s: heard %+v, want %+v", security, c.name, got, want)
				}
			default:
				if !c.silent {
					t.Errorf("%s, %s: nobody heard it", security, c.name)
				}
			}
			a.Unlisten()
		}
	}
}

// TestAskWhoRefuses: a node that only asks is judged by CheckCaller and not by CheckPeer, because CheckPeer may write.
func TestAskWhoRefuses(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	introduce(a, b)
	b.check = func(Identity) error {
		t.Error("it was taken for a peer")
		return nil
	}
	welcome := a.cfg.Identity
	b.caller = func(id Identity) error {
		if id.Instance == welcome.Instance {
			return nil
		}
		return errors.New("not you")
	}
	b.start(t)
	if got := a.AskWhoRefuses(t.Context()); got != nil {
		t.Errorf("a welcome node is refused: %v", got)
	}
	close(within(t, b.calls, "the question").done)
	a.cfg.Identity.Instance[0]++
	if got := a.AskWhoRefuses(t.Context()); len(got) != 1 || got[0].Code != CodePeer || got[0].By != "b" {
		t.Errorf("refused by %+v", got)
	}
}

// TestAnswer: two nodes that introduce themselves answer one another, and do nothing
// more.
func TestAnswer(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	introduce(a, b)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Answer(ctx) }()
	if i := a.Introduce(ctx); i.Rejections != nil || i.Silent != nil {
		t.Errorf("the other one does not answer: %+v", i)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(a.events) > 0 || len(b.events) > 0 {
		t.Error("one of them has opened a connection")
	}
}

// The dialling side checks the answering side, too.
func TestRejectedAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer greeting
		code   Code
		text   string
	}{
		{"another node's address", greeting{version: 1, body: appendIdentity(nil, identity(nodeC))},
			CodeTarget, `node "c" (id 3) answers at `},
		{"another instance", greeting{version: 1, body: appendIdentity(nil, Identity{ClusterID: 0xc1, Node: nodeB, NodeName: "b"})},
			CodePeer, "node b has another data directory than before"},
		{"another version", greeting{version: 5, body: []byte("future")},
			CodeVersion, `node "b" chose protocol version 5, and node "a" (quorate 1.0) speaks protocol versions 1 to 4`},
		{"rejection of another version", greeting{version: 5, word: 200, body: []byte("future reason")},
			200, "future reason"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ln := rawPeer(t)
			a := newNode(t, nodeA, nodeB)
			a.check = pinInstance
			a.setAddr(nodeB, ln.Addr().String())
			a.start(t)
			for range 2 { // one dial of each class
				conn, err := ln.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				if _, err := readGreeting(conn); err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Write(appendGreeting(nil, c.answer)); err != nil {
					t.Fatal(err)
				}
			}
			got := within(t, a.rejected, "Rejected")
			if got.Code != c.code || !strings.HasPrefix(got.Text, c.text) {
				t.Errorf("got %+v, want code %d and %q", got, c.code, c.text)
			}
		})
	}
}

func TestIdentityThatDoesNotFitIsAnErrorOfListen(t *testing.T) {
	id := identity(nodeA)
	id.Version = strings.Repeat("x", greetingBodyBytesMax)
	if err := New(Config{Identity: id, Listen: "127.0.0.1:0"}).Listen(); err == nil {
		t.Error("Listen took an identity that no greeting can carry")
	}
}

func TestOwnEntryAmongPeersIsIgnored(t *testing.T) {
	a := newNode(t, nodeA, nodeA, nodeB)
	defer func() { _ = a.listener.Close() }()
	var got []cluster.NodeID
	for _, p := range a.Stats().Peers {
		got = append(got, p.ID)
	}
	if diff := cmp.Diff([]cluster.NodeID{nodeB}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
