package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"
)

// TestWrite: of this test's own binary, which has no module but Go's library.
func TestWrite(t *testing.T) {
	var out bytes.Buffer
	if err := write(&out, "v1", os.Args[0]); err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(out.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.Metadata.Component.Version != "v1" || len(b.Metadata.Component.Hashes) != 1 ||
		len(b.Components) == 0 || b.Components[0].PURL != "pkg:golang/stdlib@"+strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("%s", out.String())
	}
	if err := write(&out, "v1", "main.go"); err == nil {
		t.Error("a text is taken for a binary")
	}
}
