package mysqlwire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/quorate/quorate/internal/sys/deadhost/deadhosttest"
	"github.com/quorate/quorate/internal/sys/strangers"
	"github.com/quorate/quorate/internal/testkit/hostile"
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

// Clients that do not log in take no places from clients that do, even if they come from the
// same address.
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

// A client from an address where no reader may come from gets not even a greeting, and the log
// has its address.
func TestReadersAllowedFromElsewhereAreNotGreeted(t *testing.T) {
	account := func(name, network string) Reader {
		return Reader{User: name, PasswordHash: HashPassword("cdc's secret"), Allow: []netip.Prefix{netip.MustParsePrefix(network)}}
	}
	var text bytes.Buffer
	config := readersConfig(newReaderLog(), account("a", "127.0.0.5/32"), account("b", "127.0.1.0/24"))
	config.Logger = slog.New(slog.NewTextHandler(&text, nil))
	feed, err := NewFeed(config)
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
		if got := text.String(); strings.Count(got, "reader.allow") != 1 || !strings.Contains(got, "remote=127.0.0.1:") {
			t.Errorf("the log: %s", got)
		}
	}()
	if n, err := dialFeedFrom(t, feed, "127.0.0.1").Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a stranger was greeted: %d bytes, %v", n, err)
	}
	for user, ip := range map[string]string{"a": "127.0.0.5", "b": "127.0.1.9"} {
		newFakeReplica(t, dialFeedFrom(t, feed, ip)).loginAs(user)
	}
	// The network of another account gets it a greeting, and no more.
	if err := login(newFakeReplica(t, dialFeedFrom(t, feed, "127.0.0.5")).wire, "b", "cdc's secret"); err == nil {
		t.Error("b logged in from where only a may come from")
	}
	waitUntil(t, "what was refused", func() bool { return feed.Stats().Refused == 2 })
}

// TestFloodKeepsNoReaderOut: TLS handshakes of clients that are no readers are slowed down. A reader gets in at once
// from an address that it came from before.
func TestFloodKeepsNoReaderOut(t *testing.T) {
	cert, roots := newCertificate(t)
	var now atomic.Pointer[tls.Certificate]
	now.Store(cert)
	feed := newTLSReaders(t, samples(t), &now)
	limits := feed.strangersLimits()
	if limits.TurnEvery != readersTurnEvery || time.Duration(limits.TurnsWaiting)*limits.TurnEvery > handshakeTimeout/2 {
		t.Errorf("the last one who waits has no time left to log in: %+v", limits)
	}
	limits.TurnEvery, limits.TurnsWaiting = time.Hour, 0
	feed.strangers = strangers.New(limits, slog.New(slog.DiscardHandler))
	runReaders(t, feed)
	come := func(last byte) error {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}}
		conn, err := client.ConnectWithDialer(t.Context(), "tcp", feed.Addr().String(), "cdc", "cdc's secret", "", d.DialContext, func(conn *client.Conn) error {
			conn.SetTLSConfig(&tls.Config{RootCAs: roots, ServerName: readersName})
			return nil
		})
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	for n, c := range []struct {
		from byte
		away uint64
	}{{1, 0}, {66, 1}, {67, 2}, {1, 2}} { // the first one takes the only turn of an hour
		if err := come(c.from); (err == nil) != (c.from == 1) || feed.Stats().TurnedAway != c.away {
			t.Errorf("number %d: %v, %d were turned away", n, err, feed.Stats().TurnedAway)
		}
	}
}

// TestReadersAreRecorded: the log says who reads, from where, and when that ended. A reader that connects again and
// again gets a bounded number of lines, and the next line says how many were left out.
func TestReadersAreRecorded(t *testing.T) {
	var text bytes.Buffer
	config := readersConfig(newReaderLog(), cdcAccounts()...)
	config.Logger = slog.New(slog.NewTextHandler(&text, nil))
	feed, err := NewFeed(config)
	if err != nil {
		t.Fatal(err)
	}
	var ended error
	hostile.Talk(t, 64<<20, feed.serving(true, &ended), func(conn *net.UnixConn) {
		w := &wire{conn: conn, in: newPacketReader(conn, commandBufferBytes, loginBytesMax)}
		if err := login(w, "cdc", "cdc's secret"); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	})
	for _, want := range []string{"a reader has logged in", "a reader's session ended"} {
		if !regexp.MustCompile(`level=INFO msg="` + want + `" client=\S* reader=cdc connection=7`).MatchString(text.String()) {
			t.Errorf("%v, %q is not in the log:\n%s", ended, want, text.String())
		}
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	s := newFeedSession(feed, far, 7)
	defer s.stay.Leave()
	s.reader = feed.accounts[0]
	text.Reset()
	for range 20 * strangers.BurstMax {
		s.leaveReader()
	}
	lines := strings.Count(text.String(), "\n")
	if lines < strangers.BurstMax-1 || lines >= 20*strangers.BurstMax {
		t.Errorf("%d lines", lines)
	}
}

// TestHostOfAReaderDies: an answer is under way to a reader whose host has died. Its session in mysqld may hold a lock that stops
// all writes.
func TestHostOfAReaderDies(t *testing.T) {
	feed := startReaders(t, newReaderLog())
	r := dialFeed(t, feed).loginAs("cdc")
	deadhosttest.Die(t, r.wire.conn.(*net.TCPConn))
	r.ask(append([]byte{comQuery}, "SELECT 1"...))
	for end := time.Now().Add(30 * time.Second); feed.Stats().Connections > 0; time.Sleep(20 * time.Millisecond) {
		if feed.closeDead(100 * time.Millisecond); time.Now().After(end) {
			t.Fatal("the connection of a dead host stays")
		}
	}
}
