// Command sbom prints what Go modules a binary is made of, as CycloneDX: what the Go toolchain
// has written into the binary, and nothing else. So it says the same of the same binary.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime/debug"
	"strings"
)

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref,omitempty"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl,omitempty"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type metadata struct {
	Component component `json:"component"`
}

type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom VERSION BINARY")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write writes the modules of the binary at file, which is called version.
func write(w io.Writer, version, file string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	b := bom{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{component{
		Type: "application", Name: path.Base(info.Path), Version: version, Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
	}}}
	b.Components = []component{library("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		b.Components = append(b.Components, module(m))
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(b)
}

func module(m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	return library(m.Path, m.Version)
}

func library(name, version string) component {
	purl := "pkg:golang/" + name + "@" + version
	return component{Type: "library", Ref: purl, Name: name, Version: version, PURL: purl}
}
