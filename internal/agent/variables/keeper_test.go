package variables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// server is a mysqld that takes every value, except as its fields say.
type server struct {
	said   []string
	static map[string]bool
	wrong  map[string]bool
	broken bool
	// passing: what is wrong passes. badTLS: TLS cannot be loaded again.
	passing, badTLS bool
}

func (s *server) set(name, what string) error {
	switch {
	case s.broken:
		return errors.New("bad connection")
	case s.static[name]:
		return fmt.Errorf("set %s: %w", name, mysqld.ErrAtStart)
	case s.wrong[what]:
		number := uint16(1231)
		if s.passing {
			number = 3166
		}
		return &mysqld.RefusedError{Name: name, Why: "Variable '" + name + "' can't be set", Number: number}
	}
	s.said = append(s.said, what)
	return nil
}

func (s *server) SetGlobal(_ context.Context, name, value string) error {
	return s.set(name, name+"="+value)
}
func (s *server) ResetGlobal(_ context.Context, name string) error {
	return s.set(name, name+"=DEFAULT")
}

func (s *server) ReloadTLS(_ context.Context, names []string) error {
	s.said = append(s.said, "TLS of "+strings.Join(names, ","))
	if s.badTLS {
		return &mysqld.RefusedError{Why: "TLS goes on as before", Number: 3888}
	}
	return nil
}

func (s *server) told() (said []string) { said, s.said = s.said, nil; return said }

type vars = map[string]string

// TestKeeper follows one mysqld, and the next one.
func TestKeeper(t *testing.T) {
	s := &server{static: map[string]bool{"static": true}, wrong: map[string]bool{"c=bad": true}}
	k := New("b", vars{"Max-Connections": "200", "own": "1"})
	step := func(name string, incarnation uint64, want vars, said []string, report cluster.VariablesOf) {
		t.Helper()
		report.Node = "b"
		k.Keep(t.Context(), incarnation, want, s)
		if diff := cmp.Diff(said, s.told()); diff != "" {
			t.Errorf("%s: said (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(report, k.Report(want)); diff != "" {
			t.Errorf("%s: report (-want +got):\n%s", name, diff)
		}
	}
	ok := cluster.VariablesOf{}
	step("before any mysqld", 7, vars{"a": "1"}, nil, ok)
	k.Started(7, vars{"a": "1"}, nil)
	step("it was started with it", 7, vars{"a": "1"}, nil, ok)
	step("another value, and one more", 7, vars{"a": "2", "b": "x"}, []string{"a=2", "b=x"}, ok)
	step("nothing new", 7, vars{"a": "2", "b": "x"}, nil, ok)
	step("back to the defaults", 7, nil, []string{"a=DEFAULT", "b=DEFAULT"}, ok)
	step("above the configuration's", 7, vars{"max_connections": "500"}, []string{"max_connections=500"}, cluster.VariablesOf{Own: vars{"max_connections": "200"}})
	step("back to the configuration's", 7, nil, []string{"max_connections=200"}, ok)
	step("a default of quorate's", 7, vars{"max_allowed_packet": "1M"}, []string{"max_allowed_packet=1M"}, ok)
	step("back to that", 7, nil, []string{"max_allowed_packet=469762048"}, ok)
	waits := cluster.VariablesOf{Restart: []string{"static"}}
	step("at a start only", 7, vars{"static": "1"}, nil, waits)
	step("is not tried again", 7, vars{"static": "1"}, nil, waits)
	step("nor waited for", 7, nil, nil, ok)
	step("once more", 7, vars{"static": "1"}, nil, waits)
	refused := cluster.VariablesOf{Restart: []string{"static"}, Failed: vars{"c": "Variable 'c' can't be set"}}
	step("refused", 7, vars{"static": "1", "c": "bad"}, nil, refused)
	step("not tried again", 7, vars{"static": "1", "c": "bad"}, nil, refused)
	step("a better value", 7, vars{"static": "1", "c": "good"}, []string{"c=good"}, waits)
	s.broken = true
	k.Keep(t.Context(), 7, vars{"static": "1", "c": "best"}, s)
	if r := k.Report(vars{"static": "1", "c": "best"}); r.Failed["c"] != "bad connection" {
		t.Errorf("it could not be asked: %+v", r)
	}
	s.broken = false
	step("it is tried again", 7, vars{"static": "1", "c": "best"}, []string{"c=best"}, waits)
	step("of another incarnation", 8, vars{"static": "1"}, nil, waits)
	k.Started(8, vars{"static": "1", "c": "best"}, nil)
	step("the next one began with it", 8, vars{"static": "1", "c": "best"}, nil, ok)
	step("what no operator may set", 8, vars{"static": "1", "c": "best", "sync_binlog": "1"}, nil,
		cluster.VariablesOf{Failed: vars{"sync_binlog": "variable is set by quorate: sync_binlog (its value is part of quorate's promise)"}})
	k.Started(9, nil, errors.New("mysqld has ended: exit status 1"))
	step("it did not start with them", 9, vars{"c": "best"}, nil, cluster.VariablesOf{Error: "mysqld has ended: exit status 1"})
}

// trier is a trial that leaves what it tried.
type trier []string

func (left trier) TryGlobals(context.Context, map[string]string) ([]string, map[string]string, error) {
	return nil, nil, fmt.Errorf("try: %w", &mysqld.PutBackError{Names: left, Err: errors.New("bad connection")})
}

// TestTrialLeavesNothing: what a trial could not put back is set again: to the cluster's value, the configuration's
// value or the default.
func TestTrialLeavesNothing(t *testing.T) {
	s, k := &server{}, New("b", vars{"own": "1"})
	k.Started(7, vars{"a": "1", "same": "x"}, nil)
	want := vars{"a": "1", "same": "x"}
	if _, _, err := k.Try(t.Context(), 7, nil, trier{"a", "new", "own"}); err == nil {
		t.Error("no error")
	}
	k.Keep(t.Context(), 7, want, s)
	if diff := cmp.Diff([]string{"a=1", "new=DEFAULT", "own=1"}, s.told()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	k.Keep(t.Context(), 7, want, s)
	if said := s.told(); said != nil {
		t.Errorf("once more: %v", said)
	}
	_, _, _ = k.Try(t.Context(), 6, nil, trier{"a"}) // of a mysqld that is gone
	k.Started(8, nil, errors.New("it did not start with them"))
	_, _, _ = k.Try(t.Context(), 8, nil, trier{"a"})
	k.Keep(t.Context(), 8, want, s)
	if diff := cmp.Diff([]string{"a=DEFAULT"}, s.told()); diff != "" {
		t.Errorf("of a server that runs without (-want +got):\n%s", diff)
	}
}

// TestRefusedForNow: a value that the server refuses for now is tried again.
func TestRefusedForNow(t *testing.T) {
	s, k := &server{wrong: map[string]bool{"a=2": true}, passing: true}, New("b", nil)
	k.Started(7, nil, nil)
	k.Keep(t.Context(), 7, vars{"a": "2"}, s)
	if r := k.Report(vars{"a": "2"}); r.Failed["a"] == "" {
		t.Errorf("report %+v", r)
	}
	s.wrong = nil
	k.Keep(t.Context(), 7, vars{"a": "2"}, s)
	if r := k.Report(vars{"a": "2"}); r.Failed["a"] != "" || cmp.Diff([]string{"a=2"}, s.told()) != "" {
		t.Errorf("report %+v", r)
	}
}

// TestUnsetWhileRefused: a refused value that the cluster does not have any more is no longer reported.
func TestUnsetWhileRefused(t *testing.T) {
	s, k := &server{wrong: map[string]bool{"a=2": true}, passing: true}, New("b", nil)
	k.Started(7, nil, nil)
	k.Keep(t.Context(), 7, vars{"a": "2"}, s)
	k.Keep(t.Context(), 7, nil, s)
	if r := k.Report(nil); r.Failed != nil {
		t.Errorf("report %+v", r)
	}
}

// TestReloadsTLS: TLS is loaded again once all its variables are set, and again while that fails.
func TestReloadsTLS(t *testing.T) {
	s, k := &server{}, New("b", nil)
	k.Started(7, nil, nil)
	want := vars{"ssl_cipher": "x", "tls_version": "TLSv1.3", "a": "1"}
	both := []string{"ssl_cipher=x", "tls_version=TLSv1.3", "TLS of ssl_cipher,tls_version"}
	k.Keep(t.Context(), 7, want, s)
	if diff := cmp.Diff(append([]string{"a=1"}, both...), s.told()); diff != "" {
		t.Errorf("set (-want +got):\n%s", diff)
	}
	s.badTLS = true
	for range 2 {
		k.Keep(t.Context(), 7, nil, s)
		said := s.told()
		if said[len(said)-1] != "TLS of ssl_cipher,tls_version" || k.Report(nil).Failed["tls_version"] == "" {
			t.Errorf("said %v, %+v", said, k.Report(nil))
		}
	}
	s.badTLS = false
	k.Keep(t.Context(), 7, nil, s)
	s.told()
	k.Keep(t.Context(), 7, nil, s)
	if said := s.told(); said != nil || k.Report(nil).Failed != nil {
		t.Errorf("said %v, %+v", said, k.Report(nil))
	}
}

func TestLegal(t *testing.T) {
	want := vars{"max_connections": "5", "gtid_mode": "OFF", "general_log_file": "/x"}
	if diff := cmp.Diff(vars{"max_connections": "5"}, Legal(want)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(want) != 3 {
		t.Error("the caller's were changed")
	}
}

func TestTrouble(t *testing.T) {
	for _, c := range []struct {
		of   cluster.VariablesOf
		want string
	}{
		{cluster.VariablesOf{Node: "b", Own: vars{"a": "1"}}, ""},
		{cluster.VariablesOf{Node: "b", Restart: []string{"x", "y"}}, "variables: x, y waits for a restart: quorate restart-mysqld b"},
		{cluster.VariablesOf{Node: "b", Failed: vars{"x": "no"}}, "variables: x is not set: no"},
		{cluster.VariablesOf{Node: "b", Error: "ended"}, "did not start with the cluster's variables, and runs without them: ended; correct them"},
	} {
		if got := Trouble(c.of); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
