package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/transport"
)

// ErrNoAnswer means that a request was sent, and that it is not known whether it was carried out.
var ErrNoAnswer = errors.New("read the answer")

// Ask sends a request to another node's agent and reads the answer, even if that is a refusal.
// The connection stays open, and the caller closes it: some requests go on. The end of ctx ends
// the wait for the answer. After any error but ErrNoAnswer the request was not carried out.
func Ask(ctx context.Context, by *transport.Transport, to cluster.NodeID, r control.Request) (net.Conn, control.Answer, error) {
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
		return nil, control.Answer{}, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	return conn, answer, nil
}

// AskFor asks for a result, and closes the connection.
func AskFor(ctx context.Context, by *transport.Transport, to cluster.NodeID, r control.Request, result any) error {
	conn, answer, err := Ask(ctx, by, to, r)
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

// Question is a request that a node makes by itself, without arguments.
func (s *Server) Question(name string) control.Request {
	return control.Request{Name: name, By: s.Records.ByItself(), Args: json.RawMessage("{}")}
}

// Request asks another node's agent for a result.
func (s *Server) Request(ctx context.Context, to cluster.NodeID, name string, args, result any) (err error) {
	question := s.Question(name)
	if question.Args, err = json.Marshal(args); err != nil {
		return fmt.Errorf("encode the arguments of %s: %w", name, err)
	}
	if err := AskFor(ctx, s.Node.Peers(), to, question, result); err != nil {
		return fmt.Errorf("ask node %s: %w", s.Board.Name(to), err)
	}
	return nil
}
