package agent

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
)

// TestControlSessions: the newest clients of both ports are listed.
func TestControlSessions(t *testing.T) {
	a := openLone(t)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, p := range []interface {
		Listen() error
		Run(context.Context) error
	}{a.router, a.reads} {
		if err := p.Listen(); err != nil {
			t.Fatal(err)
		}
		go func() { done <- p.Run(ctx) }()
	}
	t.Cleanup(func() {
		end()
		<-done
		<-done
	})
	ask := func(last int) (cluster.Sessions, error) {
		d, err := a.controlSessions(t.Context(), control.Request{Name: "sessions", By: "ann@db1"}, cluster.SessionsRequest{Node: "a", Last: last})
		s, _ := d.Result.(cluster.Sessions)
		return s, err
	}
	var want []cluster.Session
	for port, addr := range []string{a.router.Addr().String(), a.reads.Router().Addr().String()} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		want = append(want, cluster.Session{
			Client: conn.LocalAddr().String(), Port: []string{"read_write", "read_only"}[port], State: cluster.SessionHeld, Node: "a",
		})
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if s, err := ask(10); err != nil || time.Now().After(deadline) {
				t.Fatalf("%+v, %v", s, err)
			} else if s.Clients == len(want) {
				break
			}
		}
	}
	got, err := ask(10)
	if d := cmp.Diff(cluster.Sessions{Node: "a", Clients: 2, Newest: want}, got, cmpopts.IgnoreFields(cluster.Session{}, "Since")); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if got, err = ask(1); err != nil || got.Clients != 2 || len(got.Newest) != 1 || got.Newest[0].Port != "read_only" {
		t.Errorf("the newest: %+v, %v", got, err)
	}
	for _, last := range []int{0, cluster.LinesMax + 1} {
		if _, err := ask(last); err == nil {
			t.Errorf("%d lines were not refused", last)
		}
	}
}

// TestSessionsFitIntoAnAnswer: an answer has room for as many sessions as may be asked for, each as long as it may
// be.
func TestSessionsFitIntoAnAnswer(t *testing.T) {
	name := strings.Repeat("n", 64)
	address := "[2001:0db8:1111:2222:3333:4444:5555:6666%eth0.1234567]:65535"
	s := cluster.Session{Client: address, Port: "read_write", State: cluster.SessionRouted, Node: name, Target: name,
		Since: time.Date(2026, 11, 22, 11, 22, 33, 999e6, time.UTC), Stream: address, Server: address}
	one, err := json.Marshal(s)
	if err != nil || len(one) > 500 || cluster.LinesMax*(len(one)+1) > control.AnswerBytesMax-1000 {
		t.Errorf("%d bytes, %v", len(one), err)
	}
}
