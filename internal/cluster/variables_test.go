package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVariables(t *testing.T) {
	with := func(variables map[string]string) State {
		s := testState()
		s.Variables = variables
		return s
	}
	many := map[string]string{}
	for i := range VariablesMax {
		many[fmt.Sprintf("v%d", i)] = "1"
	}
	for name, c := range map[string]struct {
		from   State
		change VariablesChange
		want   map[string]string
		says   string
		err    string
	}{
		"set": {testState(), VariablesChange{Set: map[string]string{"b_c": "1G", "a": ""}}, map[string]string{"b_c": "1G", "a": ""},
			"set variables a=, b_c=1G", ""},
		"set and unset": {with(map[string]string{"a": "1", "b": "2"}), VariablesChange{Set: map[string]string{"a": "3"}, Unset: []string{"b"}}, map[string]string{"a": "3"},
			"set variables a=3; unset variables b", ""},
		"the last one": {with(map[string]string{"a": "1"}), VariablesChange{Unset: []string{"a"}}, nil, "unset variables a", ""},
		"a long value": {testState(), VariablesChange{Set: map[string]string{"a": strings.Repeat("é", 200)}}, map[string]string{"a": strings.Repeat("é", 200)},
			"set variables a=" + strings.Repeat("é", 20) + "…", ""},
		"so already":       {with(map[string]string{"a": "1"}), VariablesChange{Set: map[string]string{"a": "1"}, Unset: []string{"b"}}, nil, "", "it is so already"},
		"nothing":          {testState(), VariablesChange{}, nil, "", "no variable is named"},
		"both":             {testState(), VariablesChange{Set: map[string]string{"a": "1"}, Unset: []string{"a"}}, nil, "", "both set and unset"},
		"another spelling": {testState(), VariablesChange{Set: map[string]string{"max-x": "1"}}, nil, "", `"max-x" is not the name`},
		"a line break":     {testState(), VariablesChange{Set: map[string]string{"a": "1\nb=2"}}, nil, "", "no control characters"},
		"too long":         {testState(), VariablesChange{Set: map[string]string{"a": strings.Repeat("x", 513)}}, nil, "", "512 bytes at most"},
		"a long name":      {testState(), VariablesChange{Set: map[string]string{strings.Repeat("x", 65): "1"}}, nil, "", "is not the name"},
		"too many":         {with(many), VariablesChange{Set: map[string]string{"w": "1"}}, nil, "", "there would be 65 variables, at most 64"},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.from.Clone()
			full := change(Change{Variables: &c.change})
			got, err := c.from.With(full)
			if diff := cmp.Diff(before, c.from); diff != "" {
				t.Errorf("the state of before has changed (-want +got):\n%s", diff)
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Variables); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if full.String() != c.says || full.Format() != 4 {
				t.Errorf("%q, format %d", full, full.Format())
			}
			if want := map[bool]int{true: 1, false: 4}[len(c.want) == 0]; got.Format() != want {
				t.Errorf("a state of format %d, want %d", got.Format(), want)
			}
		})
	}
}

// TestVariablesBytes: even with as many and as long variables as possible, a state is far smaller than an entry
// may be.
func TestVariablesBytes(t *testing.T) {
	s := testState()
	var err error
	for i := range VariablesMax {
		name := strings.Repeat("x", variableNameBytesMax-2) + fmt.Sprintf("%02d", i)
		if s, err = s.With(change(Change{Variables: &VariablesChange{Set: map[string]string{name: strings.Repeat("<", variableValueBytesMax)}}})); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(s)
	if err != nil || len(b) > 256<<10 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := s.With(change(Change{Variables: &VariablesChange{Set: map[string]string{"one_more": "1"}}})); err == nil || errors.Is(err, ErrUnchanged) {
		t.Errorf("one more: %v", err)
	}
}
