package cluster

import (
	"encoding/json"
	"fmt"
)

// NewerError refuses what a newer quorate has written, and this one does not know.
type NewerError struct {
	// What has a number (Has) that is higher than all numbers that this quorate knows (Newest).
	What        string
	Has, Newest int
}

// Error says what to do.
func (e *NewerError) Error() string {
	return fmt.Sprintf("a newer quorate wrote %s %d, this one knows up to %d: upgrade quorate on this node", e.What, e.Has, e.Newest)
}

// The state as JSON has its format, in each entry, file and answer. So a quorate that does not know all of a state
// refuses the state, and does not lose the rest.

// MarshalJSON implements json.Marshaler.
func (s State) MarshalJSON() ([]byte, error) {
	type fields State
	out := struct {
		fields
		Format int `json:"format,omitempty"`
	}{fields: fields(s)}
	if f := s.Format(); f > 1 { // older agents do not write it at all
		out.Format = f
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler. A state that this quorate does not know all of is a *NewerError.
func (s *State) UnmarshalJSON(b []byte) error {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return err
	}
	if head.Format > StateFormat { // before the rest, which may look different there
		return &NewerError{"a cluster state of format", head.Format, StateFormat}
	}
	type fields State
	return json.Unmarshal(b, (*fields)(s))
}
