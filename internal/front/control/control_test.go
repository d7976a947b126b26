package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/testkit/hostile"
)

func TestFramesRoundTrip(t *testing.T) {
	var wire bytes.Buffer
	request := Request{Name: "node.set", By: "ann@db1", Args: json.RawMessage(`{"name":"b"}`), From: "a"}
	answer := Answer{Code: CodeStale, Error: "too late", Node: "b", Index: 7}
	if err := WriteRequest(&wire, request); err != nil {
		t.Fatal(err)
	}
	if err := WriteAnswer(&wire, answer); err != nil {
		t.Fatal(err)
	}
	gotRequest, err := ReadRequest(&wire)
	if d := cmp.Diff(request, gotRequest); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	gotAnswer, err := ReadAnswer(&wire)
	if d := cmp.Diff(answer, gotAnswer); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if _, err := ReadAnswer(&wire); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last: %v", err)
	}
}

// TestFrameGolden: the bytes must not change, because two versions of agents talk to each
// other.
func TestFrameGolden(t *testing.T) {
	var wire bytes.Buffer
	if err := WriteRequest(&wire, Request{Name: "x", By: "y"}); err != nil {
		t.Fatal(err)
	}
	want := "QC\x01\x01\x15\x00\x00\x00\xdd\x77\x62\x52" + `{"name":"x","by":"y"}`
	if d := cmp.Diff(want, wire.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	wire.Reset()
	if err := WriteAnswer(&wire, Answer{Code: CodeOK, Node: "b", Index: 7}); err != nil {
		t.Fatal(err)
	}
	want = "QC\x01\x02\x22\x00\x00\x00\xe1\x18\x65\xd1" + `{"code":"ok","node":"b","index":7}`
	if d := cmp.Diff(want, wire.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestUnknownFieldsAreSkipped: a later agent may send more fields.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	var wire bytes.Buffer
	later := struct {
		Answer
		Later string `json:"later"`
	}{Answer{Code: "later-code", Node: "b"}, "x"}
	if err := write(&wire, frameAnswer, AnswerBytesMax, later); err != nil {
		t.Fatal(err)
	}
	got, err := ReadAnswer(&wire)
	if d := cmp.Diff(later.Answer, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestFramesRefuse(t *testing.T) {
	var wire bytes.Buffer
	if err := WriteRequest(&wire, Request{Name: "x", By: "y"}); err != nil {
		t.Fatal(err)
	}
	good := wire.Bytes()
	for at := range good {
		bad := bytes.Clone(good)
		bad[at] ^= 0x40
		if _, err := ReadRequest(bytes.NewReader(bad)); err == nil {
			t.Errorf("a flipped bit at %d was not noticed", at)
		}
		if _, err := ReadRequest(bytes.NewReader(good[:at])); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", at, err)
		}
	}
	if _, err := ReadAnswer(bytes.NewReader(good)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a request for an answer: %v", err)
	}
	err := WriteRequest(io.Discard, Request{Name: strings.Repeat("x", RequestBytesMax)})
	if err == nil || !strings.Contains(err.Error(), "at most 65536") {
		t.Errorf("too long: %v", err)
	}
}

func TestAnswerErr(t *testing.T) {
	if err := (Answer{Code: CodeOK}).Err(); err != nil {
		t.Error(err)
	}
	err := Answer{Code: CodeNoLeader, Error: "nobody leads"}.Err()
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeNoLeader || e.Error() != "nobody leads" {
		t.Errorf("error %v", err)
	}
}

// FuzzRead reads anything as a request, and as an answer. What was read can be sent on.
func FuzzRead(f *testing.F) {
	var wire bytes.Buffer
	if err := WriteRequest(&wire, Request{Name: "x", By: "y", Args: json.RawMessage(`{}`)}); err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Clone(wire.Bytes()))
	wire.Reset()
	if err := WriteAnswer(&wire, Answer{Code: CodeStale, Error: "too late", Node: "b", Index: 7, Result: json.RawMessage(`[1]`)}); err != nil {
		f.Fatal(err)
	}
	f.Add(wire.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		b = hostile.Mend(b, frameFormat)
		var again bytes.Buffer
		if r, err := ReadRequest(bytes.NewReader(b)); err == nil && WriteRequest(&again, r) == nil { // else JSON's escapes make it too long
			if _, err := ReadRequest(&again); err != nil {
				t.Fatal(err)
			}
		}
		again.Reset()
		if a, err := ReadAnswer(bytes.NewReader(b)); err == nil && WriteAnswer(&again, a) == nil {
			if _, err := ReadAnswer(&again); err != nil {
				t.Fatal(err)
			}
		}
	})
}
