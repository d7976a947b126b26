package sim

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
)

// callTimeout bounds a question to another node, as the product's do: it answers sooner, or
// not at all.
const callTimeout = 3 * time.Second

var errNoAnswer = errors.New("no answer")

// call has serve run on another node, and returns what it answers. serve may answer later,
// or never.
func call[T any](ctx context.Context, l *life, peer *node, serve func(answer func(T, error))) (got T, err error) {
	ctx, cancel := l.WithTimeout(ctx, callTimeout)
	defer cancel()
	var done signal
	n, answered := l.n, false
	n.w.net.send(n.id, peer.id, func() {
		serve(func(t T, e error) {
			n.w.net.send(peer.id, n.id, func() { l.run(func() { got, err, answered = t, e, true; done.fire() }) })
		})
	})
	if l.Wait(ctx, 0, done.next()) != nil || !answered {
		return *new(T), errNoAnswer
	}
	return got, err
}

// callAgent has f run in another node's agent, if both take the other one for what it is
// known for.
func callAgent[T any](ctx context.Context, l *life, known *membership.Directories, peer *node, f func(a *agent) (T, error)) (T, error) {
	return call(ctx, l, peer, func(answer func(T, error)) {
		a := peer.agent
		if a == nil && peer.powered {
			answer(*new(T), errNoAnswer) // the dial is refused
		}
		if a == nil {
			return
		}
		a.life.run(func() {
			if r := admits(a.host, l.n, true); r != nil {
				answer(*new(T), r)
				return
			}
			if l.ended {
				return
			}
			if known.Check(peer.identity()) != nil {
				answer(*new(T), errNoAnswer)
				return
			}
			a.life.start(func() { answer(f(a)) })
		})
	})
}
