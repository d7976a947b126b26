package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
	"github.com/quorate/quorate/internal/transport"
)

// errNoAnswer is for a request that has gone out: whether it was carried out is unknown.
var errNoAnswer = errors.New("read the answer")

// question is a request that a node makes by itself, without arguments.
func (a *Agent) question(name string) control.Request {
	return control.Request{Name: name, By: a.records.ByItself(), Args: json.RawMessage("{}")}
}

// ask sends a request to another node's agent and reads the answer, also one that
// refuses. The stream stays open and is the caller's: some requests go on. If ctx ends
// before the answer is there, it ends the wait. Without an error that is errNoAnswer
// the request was not carried out.
func ask(ctx context.Context, by *transport.Transport, to cluster.NodeID, r control.Request) (net.Conn, control.Answer, error) {
	conn, err := by.DialCall(ctx, to)
	if err != nil {
		return nil, control.Answer{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := control.WriteRequest(conn, r); err != nil {
		_ = conn.Close()
		return nil, control.Answer{}, err
	}
	answer, err := control.ReadAnswer(conn)
	if err != nil {
		_ = conn.Close()
		return nil, control.Answer{}, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return conn, answer, nil
}

// askFor asks for a result, and for nothing else.
func askFor(ctx context.Context, by *transport.Transport, to cluster.NodeID, r control.Request, result any) error {
	conn, answer, err := ask(ctx, by, to, r)
	if err != nil {
		return err
	}
	_ = conn.Close()
	if err := answer.Err(); err != nil {
		return err
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	return nil
}
