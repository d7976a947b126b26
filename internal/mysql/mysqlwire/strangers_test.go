package mysqlwire

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"
)

// dialFeedFrom connects to a feed from an address.
func dialFeedFrom(t *testing.T, f *Feed, ip string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	conn, err := d.Dial("tcp", f.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Those who do not log in take no place of those who do, be they from the same address.
func TestSilentConnectionsKeepNoReplicaOut(t *testing.T) {
	feed := startFeed(t, newTestLog(), "9.7.4", false)
	for range 2 * strangersMax {
		dialFeedFrom(t, feed, "127.0.0.1")
	}
	dialFeed(t, feed).login()
	waitUntil(t, "the silent connections", func() bool { return feed.Stats().Expelled >= strangersMax })
	if s := feed.Stats(); s.Connections != 1 || s.ConnectionsTotal != 1 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSilentConnectionsKeepNoReaderOut(t *testing.T) {
	feed := startReaders(t, newReaderLog())
	for range 150 { // there is room for 100 readers
		dialFeedFrom(t, feed, "127.0.0.66")
	}
	dialFeed(t, feed).loginAs("cdc")
	time.Sleep(strangersSpare)
	dialFeed(t, feed).loginAs("cdc")
	if s := feed.Stats(); s.Connections != 2 || s.Expelled != 150-strangersPerSource {
		t.Errorf("%+v", s)
	}
}

// From where no reader may come nobody gets as much as a greeting.
func TestReadersAllowedFromElsewhereAreNotGreeted(t *testing.T) {
	account := func(name, network string) Reader {
		return Reader{User: name, PasswordHash: HashPassword("cdc's secret"), Allow: []netip.Prefix{netip.MustParsePrefix(network)}}
	}
	feed, err := NewFeed(readersConfig(newReaderLog(), account("a", "127.0.0.5/32"), account("b", "127.0.1.0/24")))
	if err != nil {
		t.Fatal(err)
	}
	if err := feed.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- feed.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	if n, err := dialFeedFrom(t, feed, "127.0.0.1").Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a stranger was greeted: %d bytes, %v", n, err)
	}
	for user, ip := range map[string]string{"a": "127.0.0.5", "b": "127.0.1.9"} {
		newFakeReplica(t, dialFeedFrom(t, feed, ip)).loginAs(user)
	}
	// The network of another account lets it come so far, and no farther.
	if err := login(newFakeReplica(t, dialFeedFrom(t, feed, "127.0.0.5")).wire, "b", "cdc's secret"); err == nil {
		t.Error("b logged in from where only a may come from")
	}
	waitUntil(t, "what was refused", func() bool { return feed.Stats().Refused == 2 })
}
