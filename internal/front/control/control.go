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

// Timeout bounds how long an agent tries to have a request carried out, if the
// request names no longer one.
const Timeout = 5 * time.Second

// Request is what an operator asks for.
type Request struct {
	// Name says which request it is, such as "node.set".
	Name string `json:"name"`
	// By is who asks: an OS account and a host, as the agent that was asked knows it. A
	// caller only says who became root by sudo.
	By string `json:"by"`
	// Args are the request's own, in JSON.
	Args json.RawMessage `json:"args,omitempty"`
	// From is the name of the agent that passed it on; "" = it comes from a person.
	// What was passed on is never passed on again.
	From string `json:"from,omitempty"`
}

// Code says what became of a request.
type Code string

// The codes. Part of the interface.
const (
	CodeOK Code = "ok"
	// CodeInvalid: it cannot be carried out as it stands.
	CodeInvalid Code = "invalid"
	// CodeUnknown: this agent knows no such request.
	CodeUnknown Code = "unknown-request"
	// CodeNoLeader: nobody leads, so nothing was done.
	CodeNoLeader Code = "no-leader"
	// CodeNotLeader: the agent that was asked does not lead (any more). It goes
	// between agents.
	CodeNotLeader Code = "not-leader"
	// CodeUncertain: it was begun, and it is not known whether it was done.
	CodeUncertain Code = "uncertain"
	// CodeStale: something else came first, and nothing was done.
	CodeStale Code = "stale"
	// CodePurged: the log was purged before the entry that is asked for. CodeBehind: it does not go so far.
	CodePurged Code = "purged"
	CodeBehind Code = "behind"
	// CodeFailed: anything else; nothing was done unless Error says so.
	CodeFailed Code = "failed"
	// CodeUnauthorized and those after it are the API's. It has no token, or an unknown one.
	CodeUnauthorized Code = "unauthorized"
	// CodeNoTokens: there are no tokens, so nobody operates by one.
	CodeNoTokens Code = "no-tokens"
	// CodeReadOnlyToken: the token is good for reading alone.
	CodeReadOnlyToken Code = "read-only-token"
	// CodeNotFromHere: it comes from another host than the node's.
	CodeNotFromHere Code = "not-from-here"
	// CodeForeignHost: its header Host has a name that may be a foreign page's.
	CodeForeignHost Code = "foreign-host"
	// CodeForeignOrigin: it is from a page of another origin.
	CodeForeignOrigin Code = "foreign-origin"
	// CodeBusy: all places are taken.
	CodeBusy Code = "busy"
)

// Failure is what programs read in place of a result.
type Failure struct {
	Error string `json:"error"`
	// Code is what the agent calls it; wrong usage of a command is invalid without one. "" = no agent
	// has answered.
	Code Code `json:"code,omitempty"`
	// ExitCode is a command's.
	ExitCode int `json:"exit_code,omitempty"`
	// Possible is false for a dry run that the agent refuses; nil = nobody has judged.
	Possible *bool `json:"possible,omitempty"`
}

// Answer is what became of a request.
type Answer struct {
	Code Code `json:"code"`
	// Error is one sentence; "" if Code is CodeOK.
	Error string `json:"error,omitempty"`
	// Node is the name of the node whose agent carried it out, or refused.
	Node string `json:"node,omitempty"`
	// Index is the log entry that brought the change; 0 = none did.
	Index uint64 `json:"index,omitempty"`
	// Result is the request's own, in JSON.
	Result json.RawMessage `json:"result,omitempty"`
}

// Error is an answer other than CodeOK, as an error.
type Error struct {
	Code Code
	Text string
}

// Error returns the sentence.
func (e *Error) Error() string { return e.Text }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Err returns what an answer says that went wrong; nil if nothing did.
func (a Answer) Err() error {
	if a.Code == CodeOK {
		return nil
	}
	return &Error{Code: a.Code, Text: a.Error}
}
