package control

import (
	"encoding/json"
	"fmt"
	"time"
)

// Bounds of a request and its answer.
const (
	RequestBytesMax = 64 << 10
	// AnswerBytesMax leaves room for an audit log of 2 MiB.
	AnswerBytesMax = 8 << 20
)

// Timeout bounds how long an agent tries to carry out a request, unless the request names a
// longer time.
const Timeout = 5 * time.Second

// Request is a request of an operator.
type Request struct {
	// Name says which request it is, such as "node.set".
	Name string `json:"name"`
	// By names who asks: an OS account and a host, as the first agent knows it. The client
	// itself sets it only to the account that became root by sudo.
	By string `json:"by"`
	// Args are the arguments of the request, in JSON.
	Args json.RawMessage `json:"args,omitempty"`
	// From is the name of the agent that passed the request on; "" = it comes from a person. A
	// request is passed on at most once.
	From string `json:"from,omitempty"`
}

// Code is the outcome of a request.
type Code string

// The codes. Part of the interface.
const (
	CodeOK Code = "ok"
	// CodeInvalid: the request itself is wrong.
	CodeInvalid Code = "invalid"
	// CodeUnknown: this agent does not know the request.
	CodeUnknown Code = "unknown-request"
	// CodeNoLeader: there is no leader, so nothing was done.
	CodeNoLeader Code = "no-leader"
	// CodeNotLeader: the agent that was asked is not the leader (any more). Only agents use it
	// among themselves.
	CodeNotLeader Code = "not-leader"
	// CodeUncertain: it was begun, and nobody knows whether it was done.
	CodeUncertain Code = "uncertain"
	// CodeStale: another change came first, and nothing was done.
	CodeStale Code = "stale"
	// CodePurged: the log no longer has the entry that is asked for. CodeBehind: the log does not have it
	// yet.
	CodePurged Code = "purged"
	CodeBehind Code = "behind"
	// CodeFailed: anything else; nothing was done unless Error says so.
	CodeFailed Code = "failed"
	// CodeUnauthorized and the codes after it come from the API's port. This one: the request
	// has no token, or an unknown one.
	CodeUnauthorized Code = "unauthorized"
	// CodeNoTokens: there are no tokens, so nobody may operate at the port.
	CodeNoTokens Code = "no-tokens"
	// CodeReadOnlyToken: the token allows reading only.
	CodeReadOnlyToken Code = "read-only-token"
	// CodeNotFromHere: the request comes from another host than the node's.
	CodeNotFromHere Code = "not-from-here"
	// CodeForeignHost: the header Host has a name that a foreign page may have.
	CodeForeignHost Code = "foreign-host"
	// CodeForeignOrigin: the request comes from a page of another origin.
	CodeForeignOrigin Code = "foreign-origin"
	// CodeBusy: all places are taken.
	CodeBusy Code = "busy"
)

// Failure is what programs get in place of a result.
type Failure struct {
	Error string `json:"error"`
	// Code is the agent's code. For wrong usage of a command it is CodeInvalid, without an agent. ""
	// = no agent has answered.
	Code Code `json:"code,omitempty"`
	// ExitCode is the exit code of the command.
	ExitCode int `json:"exit_code,omitempty"`
	// Possible is false for a dry run that the agent refuses; nil = not judged.
	Possible *bool `json:"possible,omitempty"`
}

// Answer is the answer to a request.
type Answer struct {
	Code Code `json:"code"`
	// Error is one sentence; "" if Code is CodeOK.
	Error string `json:"error,omitempty"`
	// Node is the name of the node whose agent carried it out, or refused.
	Node string `json:"node,omitempty"`
	// Index is the log entry of the change; 0 = there is none.
	Index uint64 `json:"index,omitempty"`
	// Result is the result of the request, in JSON.
	Result json.RawMessage `json:"result,omitempty"`
}

// Error is an answer other than CodeOK, as an error.
type Error struct {
	Code Code
	Text string
}

// Error returns Text.
func (e *Error) Error() string { return e.Text }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Err returns the error of an answer; nil for CodeOK.
func (a Answer) Err() error {
	if a.Code == CodeOK {
		return nil
	}
	return &Error{Code: a.Code, Text: a.Error}
}
