package router

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// newPipedPrimary is a node that serves; the test has mysqld's side of each session.
func newPipedPrimary(t *testing.T) (*node, <-chan net.Conn) {
	n, _ := newPrimary(t, Config{})
	server := make(chan net.Conn, 2)
	n.backend.dialLocal = func(context.Context) (net.Conn, error) {
		routers, mysqlds := net.Pipe()
		server <- mysqlds
		return routers, nil
	}
	n.backend.set(Target{Node: 1, Local: true}, true) // the dialling side has seen it
	return n, server
}

// TestAnswersOutliveTheLease: when the lease has ended, a session that waits for an answer gets
// it, if there may be one, and is closed then. A session that waits for none is closed at once.
func TestAnswersOutliveTheLease(t *testing.T) {
	n, server := newPipedPrimary(t)
	open := func() (client, mysqld net.Conn) {
		client = dial(t, n)
		mysqld = <-server
		t.Cleanup(func() { mysqld.Close() })
		say(t, mysqld, greeting)
		expect(t, client, greeting)
		return client, mysqld
	}
	idle, _ := open()
	waits, mysqld := open()
	say(t, waits, "commit")
	expect(t, mysqld, "commit")

	n.backend.answering.Store(true)
	n.backend.serving.Store(false)
	n.backend.set(Target{}, false)
	expectEnd(t, idle)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := n.AwaitAnswers(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("wait for an answer that is to come: %v", err)
	}
	say(t, mysqld, "ok")
	expect(t, waits, "ok")
	expectEnd(t, waits)
	if err := n.AwaitAnswers(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestNoRequestAfterTheLease: a session that waits for an answer passes no further byte of the
// client. If the answer cannot come any more, the session ends.
func TestNoRequestAfterTheLease(t *testing.T) {
	n, server := newPipedPrimary(t)
	for _, asks := range []bool{true, false} {
		n.backend.serving.Store(true)
		n.backend.answering.Store(false)
		client := dial(t, n)
		mysqld := <-server
		say(t, mysqld, greeting)
		expect(t, client, greeting)
		say(t, client, "commit")
		expect(t, mysqld, "commit")
		n.backend.answering.Store(true)
		n.backend.serving.Store(false)
		n.backend.set(Target{Node: 1, Local: true}, true)
		if asks {
			say(t, client, "select")
		} else {
			n.backend.answering.Store(false)
			n.backend.set(Target{Node: 1, Local: true}, true)
		}
		expectEnd(t, client)
		expectEnd(t, mysqld)
	}
}

// TestWhatHasNoAnswer: a session that has only closed statements, or sent parts of parameters,
// does not wait. After anything else it waits.
func TestWhatHasNoAnswer(t *testing.T) {
	const (
		closes   = "\x05\x00\x00\x00\x19\x01\x00\x00\x00"
		longData = "\x09\x00\x00\x00\x18\x01\x00\x00\x00\x00\x00hi"
		ping     = "\x01\x00\x00\x00\x0e"
		commit   = "\x07\x00\x00\x00\x03commit"
	)
	for chunk, wants := range map[string]bool{
		closes: false, longData: false, closes + longData + closes: false,
		ping: true, commit: true, closes + commit: true, commit + closes: true, closes + ping[:3]: true,
		closes[:8]: true, longData[:11]: true,
		"\x05\x00\x00\x01" + closes[4:]: true,                               // within something longer
		"\x00\x00\x00\x00\x19":          true, "\x17\x03\x03\x00\x19": true, // nothing; TLS
	} {
		if got := wantsAnswer([]byte(chunk)); got != wants {
			t.Errorf("%q wants an answer is %t", chunk, got)
		}
	}
	n, server := newPipedPrimary(t)
	client := dial(t, n)
	mysqld := <-server
	t.Cleanup(func() { mysqld.Close() })
	say(t, mysqld, greeting)
	expect(t, client, greeting)
	say(t, client, closes)
	expect(t, mysqld, closes)
	if err := n.AwaitAnswers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := n.unanswered(); n != 0 {
		t.Errorf("%d sessions wait", n)
	}
}
