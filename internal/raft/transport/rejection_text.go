package transport

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

// Up to protocol version 2 an order is text behind the sentence: " " and the recovery as JSON, then ":
// VERSION/INSTANCE". This file can be deleted once no agent of versions 1 and 2 has to be upgraded while its
// cluster runs: then the least version is versionOrder.

// textWithOrder returns sentence and order in the form that agents of version 2 read.
func (e *RejectedError) textWithOrder() string {
	text := e.Text
	if r := e.Order.Recovery; r != nil {
		said, _ := json.Marshal(r.Told()) // it cannot fail: there are only strings, numbers and a time
		text += " " + string(said)
	}
	if e.Order.Instance != "" {
		text += fmt.Sprintf(": %d/%s", e.Order.StateVersion, e.Order.Instance)
	}
	return text
}

// parseTextWithOrder reads what textWithOrder returns.
func parseTextWithOrder(c Code, text string) (sentence string, o Order) {
	sentence = text
	last := strings.LastIndexByte(text, ' ') + 1
	number, instance, _ := strings.Cut(text[last:], "/")
	if version, err := strconv.ParseUint(number, 10, 64); err == nil && isInstance(instance) {
		o.StateVersion, o.Instance = version, instance
		sentence = strings.TrimSuffix(text[:last], ": ")
	}
	if before, said, ok := strings.Cut(text, " {"); ok && c.namesRecovery() {
		var r cluster.Recovery
		err := json.NewDecoder(strings.NewReader("{" + said)).Decode(&r)
		if err == nil && r.Version > 0 && r.Node != "" {
			o.Recovery, sentence = &r, before
		}
	}
	return sentence, o
}
