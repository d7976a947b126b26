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

// server is a mysqld that takes what it is given, but for what its fields say.
type server struct {
	said   []string
	static map[string]bool
	wrong  map[string]bool
	broken bool
}

func (s *server) set(name, what string) error {
	switch {
	case s.broken:
		return errors.New("bad connection")
	case s.static[name]:
		return fmt.Errorf("set %s: %w", name, mysqld.ErrAtStart)
	case s.wrong[what]:
		return &mysqld.RefusedError{Name: name, Why: "Variable '" + name + "' can't be set"}
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
	step("back to that", 7, nil, []string{"max_allowed_packet=1073741824"}, ok)
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
