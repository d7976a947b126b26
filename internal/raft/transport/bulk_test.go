package transport

import (
	"errors"
	"io"
	"net"
	"testing"
)

func dialBulk(t testing.TB, from *node) net.Conn {
	t.Helper()
	conn, err := from.DialBulk(t.Context(), nodeB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestBulkIsARawStreamUntilTheHandlerReturns(t *testing.T) {
	a, b := pair(t)
	near := dialBulk(t, a)
	far := within(t, b.bulks, "the bulk stream")
	if far.from != nodeA {
		t.Errorf("from node %d", far.from)
	}
	for _, c := range []struct{ from, to net.Conn }{{near, far.conn}, {far.conn, near}} {
		if _, err := c.from.Write([]byte("stage")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 5)
		if _, err := io.ReadFull(c.to, buf); err != nil || string(buf) != "stage" {
			t.Fatalf("%q, %v", buf, err)
		}
	}
	close(far.done)
	expectClosed(t, near)
}

func TestEndOfRunClosesBulkStreams(t *testing.T) {
	a, b := pair(t)
	dialBulk(t, a)
	far := within(t, b.bulks, "the bulk stream")
	go func() {
		// The handler sees its stream end, and only then returns.
		_, _ = io.Copy(io.Discard, far.conn)
		close(far.done)
	}()
	b.stop()
}

func TestBulkStreamsOfAPeerAreBounded(t *testing.T) {
	a, b, log := loggingPair(t)
	var dialled []net.Conn
	var served []bulkStream
	for range bulkStreamsMax {
		dialled = append(dialled, dialBulk(t, a))
		served = append(served, within(t, b.bulks, "a bulk stream"))
	}
	expectClosed(t, dialBulk(t, a))
	saysRefused(t, log, classBulk)
	if got := b.Stats().Peers[0]; got.BulkStreams != bulkStreamsMax || got.BulkRefused != 1 {
		t.Errorf("%d streams, %d refused", got.BulkStreams, got.BulkRefused)
	}
	// A stream that ends makes room for the next one. The streams are served in the order of the dials.
	close(served[0].done)
	expectClosed(t, dialled[0])
	dialBulk(t, a)
	served[0] = within(t, b.bulks, "a bulk stream")
	for _, s := range served {
		close(s.done)
	}
}

func TestDialBulkErrors(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	defer func() { _ = a.listener.Close() }()
	if _, err := a.DialBulk(t.Context(), 9); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("unknown peer: %v", err)
	}
}
