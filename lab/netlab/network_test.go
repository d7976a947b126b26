package netlab

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// testWait bounds what a test waits for.
const testWait = 20 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(victimVariable) != "" {
		victim()
		return
	}
	goleak.VerifyTestMain(m)
}

// needNetworks skips where there are no network namespaces.
func needNetworks(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	ns, err := newNamespace()
	if err != nil {
		t.Skipf("needs network namespaces: %v", err)
	}
	defer ns.close()
	fd, err := openTUN(ns, netip.MustParseAddr("10.99.0.1"))
	if err != nil {
		t.Skipf("needs TUN devices: %v", err)
	}
	closeFD(fd)
}

func upNetwork(t *testing.T, name string) *Network {
	t.Helper()
	needNetworks(t)
	p, err := Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(p, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close network: %v", err)
		}
	})
	return n
}

// reaches tells whether an echo comes back.
func reaches(t *testing.T, n *Network, from, to string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	defer cancel()
	_, err := n.MeasureRTT(ctx, from, to, 1)
	if err != nil && !strings.Contains(err.Error(), "came back") {
		t.Fatal(err)
	}
	return err == nil
}

// TestMeasuredRTT: a round trip may take longer than configured, because a busy machine wakes
// processes late. It must not take less: no link is faster than configured.
func TestMeasuredRTT(t *testing.T) {
	for _, p := range Presets() {
		t.Run(p.Name, func(t *testing.T) {
			n := upNetwork(t, p.Name)
			for _, pair := range []Pair{{"a", "b"}, {"c", "b"}, {"d", "b"}, {"e", "a"}, {Client, "a"}, {Client, "b"}} {
				rtt, err := n.MeasureRTT(t.Context(), pair.From, pair.To, 15)
				if err != nil {
					t.Fatal(err)
				}
				if rtt.Configured != p.RTT(pair.From, pair.To) {
					t.Errorf("%v: configured %v, want %v", pair, rtt.Configured, p.RTT(pair.From, pair.To))
				}
				low, high := rtt.Configured-2*lead-rtt.Configured/50, rtt.Configured+rtt.Configured/5+300*time.Microsecond
				if p.direct(pair.From, pair.To) {
					low = 0
				}
				if rtt.Min <= low || rtt.Min > high {
					t.Errorf("%v: at least %v, want from %v to %v", pair, rtt.Min, low, high)
				}
			}
		})
	}
}

func TestSetLink(t *testing.T) {
	n := upNetwork(t, "same-city")
	if err := n.SetLink("a", "b", Link{Delay: 20 * ms}); err != nil {
		t.Fatal(err)
	}
	rtt, err := n.MeasureRTT(t.Context(), "b", "a", 5) // only the direction from a to b was changed
	if err != nil {
		t.Fatal(err)
	}
	if rtt.Min < 20*ms || rtt.Min > 35*ms {
		t.Errorf("20 ms forth and 0.5 ms back: %v", rtt.Min)
	}
	if err := n.SetLink("a", "c", Link{LossPerMille: 1000}); err != nil {
		t.Fatal(err)
	}
	if reaches(t, n, "a", "c") {
		t.Error("an echo came back over a link that loses all")
	}
	if n.Stats().Lost == 0 {
		t.Error("no loss was counted")
	}
	for _, c := range []struct {
		from, to, want string
		link           Link
	}{
		{"a", "x", `no node "x"`, Link{}},
		{"a", "a", "no link from a to a", Link{}},
		{"a", "b", "loss of -1", Link{LossPerMille: -1}},
		{Client, "a", "is a veth pair", Link{Delay: ms}},
	} {
		if err := n.SetLink(c.from, c.to, c.link); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("SetLink(%s, %s): %v, want %q", c.from, c.to, err, c.want)
		}
	}
}

// connect joins two nodes by TCP.
func connect(t *testing.T, n *Network, from, to string) (client, server net.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	defer cancel()
	listener, err := n.Listen(ctx, to, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = n.DialContext(from)(ctx, "tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	for _, c := range []net.Conn{client, server} {
		if err := c.SetDeadline(time.Now().Add(testWait)); err != nil {
			t.Fatal(err)
		}
	}
	return client, server
}

func say(t *testing.T, from, to net.Conn, word string) {
	t.Helper()
	if _, err := io.WriteString(from, word); err != nil {
		t.Fatal(err)
	}
	hear(t, to, word)
}

func hear(t *testing.T, c net.Conn, word string) {
	t.Helper()
	b := make([]byte, len(word))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != word {
		t.Fatalf("heard %q, %v, want %q", b, err, word)
	}
}

// TestCutAndMend: a connection outlives a cut of its link, in both kinds.
func TestCutAndMend(t *testing.T) {
	for _, c := range []struct{ network, from, to string }{{"same-rack", "a", "b"}, {"same-city", "a", "b"}, {"same-city", Client, "a"}} {
		t.Run(c.network+" "+c.from, func(t *testing.T) {
			n := upNetwork(t, c.network)
			client, server := connect(t, n, c.from, c.to)
			say(t, client, server, "before")
			before := n.topology.Links[Pair{c.from, c.to}]
			for _, p := range []Pair{{c.from, c.to}, {c.to, c.from}} { // a cut of either direction alone stops an echo
				if err := n.Cut(p.From, p.To, true); err != nil {
					t.Fatal(err)
				}
				if reaches(t, n, c.from, c.to) {
					t.Errorf("%v is cut, and an echo came back", p)
				}
				if p.From == c.from {
					if _, err := io.WriteString(client, "under way"); err != nil {
						t.Fatal(err)
					}
				}
				if err := n.Cut(p.From, p.To, false); err != nil {
					t.Fatal(err)
				}
				if !reaches(t, n, c.from, c.to) {
					t.Errorf("%v is mended, and no echo came back", p)
				}
			}
			hear(t, server, "under way")
			if after, err := n.Link(c.from, c.to); err != nil || after != before {
				t.Errorf("the mended link is %v, %v, want %v", after, err, before)
			}
		})
	}
}

// TestCutOneWay: if one direction is cut, packets of the other direction arrive.
func TestCutOneWay(t *testing.T) {
	for _, name := range []string{"same-rack", "same-city"} {
		n := upNetwork(t, name)
		ctx, cancel := context.WithTimeout(t.Context(), testWait)
		defer cancel()
		conns := map[string]*net.UDPConn{}
		for _, node := range []string{"a", "b"} {
			ns, err := n.namespaceOf(node)
			if err != nil {
				t.Fatal(err)
			}
			if err := ns.inside(func() (err error) {
				conns[node], err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.Addr(node), 5000)))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer conns[node].Close()
		}
		if err := n.Cut("a", "b", true); err != nil {
			t.Fatal(err)
		}
		for node, peer := range map[string]string{"a": "b", "b": "a"} {
			if _, err := conns[node].WriteToUDPAddrPort([]byte(node), netip.AddrPortFrom(n.Addr(peer), 5000)); err != nil {
				t.Fatal(err)
			}
		}
		deadline, _ := ctx.Deadline()
		_ = conns["a"].SetReadDeadline(deadline)
		if _, _, err := conns["a"].ReadFromUDP(make([]byte, 10)); err != nil {
			t.Errorf("%s: b to a is open: %v", name, err)
		}
		// a's packet was sent at the same time, so it would have arrived by now, or soon.
		_ = conns["b"].SetReadDeadline(time.Now().Add(50 * ms))
		if _, _, err := conns["b"].ReadFromUDP(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a to b is cut: %v", name, err)
		}
	}
}

func TestIsolate(t *testing.T) {
	for _, name := range []string{"same-rack", "same-city"} {
		t.Run(name, func(t *testing.T) {
			n := upNetwork(t, name)
			if err := n.Isolate("a", true); err != nil {
				t.Fatal(err)
			}
			for pair, want := range map[Pair]bool{{"a", "b"}: false, {"c", "a"}: false, {"b", "c"}: true, {Client, "a"}: true, {Client, "b"}: true} {
				if got := reaches(t, n, pair.From, pair.To); got != want {
					t.Errorf("a is isolated: an echo over %v comes back: %v, want %v", pair, got, want)
				}
			}
			if err := n.Isolate("a", false); err != nil {
				t.Fatal(err)
			}
			for _, to := range []string{"b", "c"} {
				if !reaches(t, n, "a", to) {
					t.Errorf("a is back: no echo from %s", to)
				}
			}
			if err := n.Isolate("x", true); err == nil || !strings.Contains(err.Error(), `no node "x"`) {
				t.Errorf("Isolate(x): %v", err)
			}
		})
	}
}

func TestDialContext(t *testing.T) {
	n := upNetwork(t, "same-city")
	own, served := connect(t, n, "b", "b") // over the node's loopback
	say(t, own, served, "hello")
	if _, err := n.DialContext("a")(t.Context(), "tcp", "localhost:1"); err == nil || !strings.Contains(err.Error(), "dial from node a") {
		t.Errorf("dial a name: %v", err)
	}
	if _, err := n.DialContext("x")(t.Context(), "tcp", "10.99.0.1:1"); err == nil || !strings.Contains(err.Error(), `no node "x"`) {
		t.Errorf("dial from x: %v", err)
	}
	if err := n.Cut("a", "b", true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
	defer cancel()
	_, err := n.DialContext("a")(ctx, "tcp", netip.AddrPortFrom(n.Addr("b"), 3306).String())
	var netErr net.Error
	if !errors.As(err, &netErr) || !netErr.Timeout() {
		t.Errorf("dial over a cut link: %v, want a timeout", err)
	}
	if _, err := n.DialContext("c")(t.Context(), "tcp", "192.0.2.1:80"); err == nil {
		t.Error("a connection left the network")
	}
}

func TestCeiling(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	n := upNetwork(t, "same-city")
	c, err := n.Ceiling(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", c)
	// How fast the network is depends on the machine. Only what holds on every machine is checked.
	if c.Packets.PerSecond <= 0 || c.Bytes.PerSecond <= 0 {
		t.Errorf("carries %.0f packets/s, %.0f bytes/s", c.Packets.PerSecond, c.Bytes.PerSecond)
	}
	if c.Packets.Processors <= 0 || c.Packets.RTT.Min <= 0 {
		t.Errorf("the switch used %v processors, RTT %v", c.Packets.Processors, c.Packets.RTT.Min)
	}
	if s := n.Stats(); s.Packets == 0 || s.Bytes < s.Packets*20 || s.CPU == 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestDownNetwork(t *testing.T) {
	n := upNetwork(t, "same-city")
	if err := n.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "up already") {
		t.Errorf("second Up: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"Cut": n.Cut("a", "b", true), "Isolate": n.Isolate("a", true), "Close": n.Close(),
		"MeasureRTT": func() error { _, err := n.MeasureRTT(t.Context(), "a", "b", 1); return err }(),
		"Ceiling":    func() error { _, err := n.Ceiling(t.Context()); return err }(),
	} {
		if name == "Close" {
			if err != nil {
				t.Errorf("second Close: %v", err)
			}
		} else if !errors.Is(err, ErrDown) {
			t.Errorf("%s: %v, want %v", name, err, ErrDown)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Up(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Up with an ended context: %v", err)
	}
	if err := n.Up(t.Context()); err != nil { // again
		t.Fatal(err)
	}
	if !reaches(t, n, "a", "b") {
		t.Error("a network that came up again carries nothing")
	}
}
