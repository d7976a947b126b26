package cluster

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNewerStateIsRefused: a state says which format it needs, unless the first one does. A quorate that does not know that
// format refuses the state, even if it could not read it. A state without it was written by an older quorate.
func TestNewerStateIsRefused(t *testing.T) {
	s := NewState([]Member{{ID: 1, Name: "a", Kind: KindFull}})
	for events, want := range map[bool]string{false: "", true: `,"format":6}`} {
		s.EventsOff = events
		b, err := json.Marshal(StatePoint{State: s, Index: 7})
		if err != nil || strings.Contains(string(b), `"format"`) != events || !strings.Contains(string(b), want) {
			t.Errorf("events off %t: %v, %s", events, err, b)
		}
		var again StatePoint
		if err := json.Unmarshal(b, &again); err != nil || cmp.Diff(s, again.State) != "" {
			t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(s, again.State))
		}
	}
	for text, refused := range map[string]bool{
		`{"version": 3}`: false,
		`{"version": 3, "format": 9, "fence": true}`: false,
		`{"version": 3, "format": 10}`:               true,
		`{"version": "3", "format": 10}`:             true,
	} {
		got := State{Version: 1}
		err := json.Unmarshal([]byte(text), &got)
		newer, ok := errors.AsType[*NewerError](err)
		if ok != refused || ok && (newer.Has != 10 || newer.Newest != StateFormat || got.Version != 1) || !ok && err != nil {
			t.Errorf("%s: %v, %+v", text, err, got)
		}
	}
}

// TestEachFieldHasAFormat: a new field of the state, or of a member, needs a format of its own in State.Format. Otherwise
// older agents would lose it without a word. Who adds a field raises StateFormat, and then the number here.
func TestEachFieldHasAFormat(t *testing.T) {
	if s, m := reflect.TypeFor[State]().NumField(), reflect.TypeFor[Member]().NumField(); s != 20 || m != 14 || StateFormat != 9 {
		t.Errorf("the state has %d fields, a member %d, for format %d", s, m, StateFormat)
	}
}
