package transport

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

// Code says why a connection was rejected. Part of the format.
type Code uint8

// The reasons for a rejection. Part of the format.
const (
	// CodeVersion: the nodes have no protocol version in common.
	CodeVersion Code = 1
	// CodeCluster: the nodes belong to different clusters.
	CodeCluster Code = 2
	// CodeTarget: another node answers at this address.
	CodeTarget Code = 3
	// CodeDuplicate: the dialling node announced the answering node's own id or name.
	CodeDuplicate Code = 4
	// CodeUnknown: the answering node's configuration has no such node.
	CodeUnknown Code = 5
	// CodePeer: Handler.CheckPeer refused.
	CodePeer Code = 6
	// CodeMalformed: the greeting was complete, but made no sense.
	CodeMalformed Code = 7
	// CodeRemoved: the dialling node was a member, and the cluster has removed it for
	// good. Order.Recovery names the recovery of that cluster, if it was recovered.
	CodeRemoved Code = 8
	// CodeRebuild: the dialling node has to build its data again, in the data directory Order.Instance.
	// Order.Recovery is as with CodeRemoved.
	CodeRebuild Code = 9
	// CodeRecovered: the dialling node was a member before the cluster was recovered
	// without it, by Order.Recovery.
	CodeRecovered Code = 10
	// CodeReseed: the dialling node has an empty data directory, and the cluster knows another one of it
	// (Order.Instance). The cluster will have the node rebuilt: the node should ask again.
	CodeReseed Code = 11
	// CodeEmpty: the answering node has an empty data directory, and its configuration does not name the
	// dialling node. Or the answering node joins, and so cannot tell whether the dialling node, whose directory
	// is empty, had data before.
	CodeEmpty Code = 12
	// CodeKey: one of the nodes does not have the key by which the other one knows it.
	CodeKey Code = 13
)

// codeAccepted in an answer means that the connection is open.
const codeAccepted Code = 0

// namesRecovery tells whether a rejection with the code may name a recovery.
func (c Code) namesRecovery() bool {
	return c == CodeRemoved || c == CodeRebuild || c == CodeRecovered
}

// Order is what a rejection tells the rejected node itself, beside the sentence for people. The zero value says
// nothing.
type Order struct {
	// Recovery is the recovery by which the rejecting cluster goes on; nil = the cluster was never recovered.
	// By and Without are not sent.
	Recovery *cluster.Recovery `json:"recovery,omitempty"`
	// StateVersion is the version of the cluster state that knows the rejected node's
	// data directory as Instance; 0 = the rejection is not about a data directory.
	StateVersion uint64 `json:"state_version,omitempty"`
	// Instance is the id of a data directory: 32 hexadecimal digits.
	Instance string `json:"instance,omitempty"`
}

// check refuses an order that makes no sense with the code.
func (o Order) check(c Code) error {
	switch {
	case o.Recovery != nil && (!c.namesRecovery() || o.Recovery.Version == 0 || o.Recovery.Node == ""):
		return fmt.Errorf("%w: a rejection with code %d names a recovery of version %d", errGreeting, c, o.Recovery.Version)
	case o.Instance != "" && !isInstance(o.Instance):
		return fmt.Errorf("%w: %q is not the id of a data directory", errGreeting, o.Instance)
	}
	return nil
}

func isInstance(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == len(Identity{}.Instance)
}

// RejectedError is the reason why two nodes do not talk to each other. Trying again does not help until
// somebody changes a configuration.
type RejectedError struct {
	Code Code
	// Text is one sentence for people.
	Text string
	// Order is for the node that is rejected.
	Order Order
	// Untold: Text is only for this node's own log.
	Untold bool
	// By is the name of the node that refuses, in errors of the dialling side. It is not sent.
	By string
	// Key is the key that the refused node shows, with CodeKey in errors of the dialling side;
	// "" = it is not known there. It is not sent.
	Key cluster.Key
}

// Elsewhere tells whether a node that is not the wanted one answers at the address.
func (e *RejectedError) Elsewhere() bool { return e.Code == CodeTarget || e.Code == CodeCluster }

// Error returns the sentence, with the name of the node that refuses.
func (e *RejectedError) Error() string {
	if e.By == "" {
		return e.Text
	}
	return fmt.Sprintf("node %q refuses the connection: %s", e.By, e.Text)
}

func reject(c Code, format string, args ...any) *RejectedError {
	return &RejectedError{Code: c, Text: fmt.Sprintf(format, args...)}
}

// rejection is the body of a rejection, as JSON.
type rejection struct {
	Text string `json:"text"`
	Order
}

// greeting returns the rejection in the protocol version that both sides speak; 0 = they have no version in
// common.
func (e *RejectedError) greeting(version uint16) greeting {
	if e.Untold {
		e = &RejectedError{Code: e.Code}
	}
	g := greeting{version: versionFirst, word: uint8(e.Code)}
	if version < versionOrder {
		text := e.textWithOrder()
		g.body = []byte(text[:min(len(text), greetingBodyBytesMax)])
		return g
	}
	r := rejection{Text: e.Text, Order: e.Order}
	if e.Order.Recovery != nil {
		r.Recovery = new(e.Order.Recovery.Told())
	}
	g.version = versionOrder
	g.body, _ = json.Marshal(r) // it cannot fail: there are only strings, numbers and a time
	for len(g.body) > greetingBodyBytesMax && r.Text != "" {
		r.Text = strings.ToValidUTF8(r.Text[:len(r.Text)*3/4], "")
		g.body, _ = json.Marshal(r)
	}
	return g
}

// parseRejection reads the answer of a node that rejects.
func parseRejection(g greeting) (*RejectedError, error) {
	e := &RejectedError{Code: Code(g.word)}
	if g.version < versionOrder || g.version > versionNewest {
		e.Text, e.Order = parseTextWithOrder(e.Code, strings.ToValidUTF8(string(g.body), "?"))
		return e, nil
	}
	var r rejection
	if err := json.Unmarshal(g.body, &r); err != nil {
		return nil, fmt.Errorf("%w: rejection with code %d: %w", errGreeting, e.Code, err)
	}
	e.Text, e.Order = strings.ToValidUTF8(r.Text, "?"), r.Order
	return e, e.Order.check(e.Code)
}
