package control

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFramesOfVersion1: a request and an answer, to the byte as agents of protocol version 2
// first wrote them. The files are never made again; fields may be added.
func TestFramesOfVersion1(t *testing.T) {
	request := Request{Name: "node.set", By: "alice@db1", Args: json.RawMessage(`{"name":"b","weight":3}`), From: "c"}
	answer := Answer{Code: CodeFailed, Error: "no", Node: "a", Index: 7, Result: json.RawMessage(`{"changed":true}`)}
	var b bytes.Buffer
	for name, write := range map[string]func() error{
		"request": func() error { return WriteRequest(&b, request) },
		"answer":  func() error { return WriteAnswer(&b, answer) },
	} {
		b.Reset()
		want, err := os.ReadFile(filepath.Join("testdata", name+"-v1.golden"))
		if err == nil {
			err = write()
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s: %q\nwant %q", name, b.Bytes(), want)
		}
		if name == "request" {
			got, err := ReadRequest(bytes.NewReader(want))
			if diff := cmp.Diff(request, got); err != nil || diff != "" {
				t.Errorf("read: %v (-want +got)\n%s", err, diff)
			}
			continue
		}
		got, err := ReadAnswer(bytes.NewReader(want))
		if diff := cmp.Diff(answer, got); err != nil || diff != "" {
			t.Errorf("read: %v (-want +got)\n%s", err, diff)
		}
	}
}
