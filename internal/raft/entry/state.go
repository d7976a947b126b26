package entry

import (
	"encoding/json"
	"fmt"

	"github.com/quorate/quorate/internal/cluster"
)

// EncodeState returns the data of the entry that brings a change of the cluster
// state, proposed in a term.
func EncodeState(term uint64, c cluster.StateChange) ([]byte, error) {
	body, err := MarshalState(c)
	if err != nil {
		return nil, err
	}
	return append(AppendHeader(nil, Header{Kind: KindState, Term: term}), body...), nil
}

// ParseState decodes the body of a KindState entry.
func ParseState(h Header, body []byte) (cluster.StateChange, error) {
	if h.Count != 0 || h.Number != 0 {
		return cluster.StateChange{}, fmt.Errorf("read cluster state: %w: it has count %d and number %d", ErrMalformed, h.Count, h.Number)
	}
	return UnmarshalState(body)
}

// MarshalState returns the body of a KindState entry, which is also the context of
// a change of Raft's configuration.
func MarshalState(c cluster.StateChange) ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode cluster state: %w", err)
	}
	return body, nil
}

// UnmarshalState decodes the result of MarshalState. A state that this quorate does not know all of is refused
// (cluster.NewerError).
func UnmarshalState(body []byte) (cluster.StateChange, error) {
	var c cluster.StateChange
	if err := json.Unmarshal(body, &c); err != nil {
		return cluster.StateChange{}, fmt.Errorf("read cluster state: %w: %w", ErrMalformed, err)
	}
	if c.State.Version == 0 || len(c.State.Members) == 0 {
		return cluster.StateChange{}, fmt.Errorf("read cluster state: %w: version %d, %d members", ErrMalformed, c.State.Version, len(c.State.Members))
	}
	return c, nil
}
