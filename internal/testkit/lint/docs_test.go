package lint

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the repository, from this package.
const root = "../../.."

// pageLinesMax bounds a page about the architecture: it is read from top to bottom.
const pageLinesMax = 250

// page is a Markdown file without its code blocks.
type page struct {
	path     string // below the repository's root
	text     string
	lines    int
	sections []string // its headings of the second level
	anchors  []string // the ends of links to its headings
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	heading   = regexp.MustCompile(`(?m)^(#+) (.*)$`)
	link      = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	unlinked  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchorOf is how GitHub names a heading.
func anchorOf(title string) string {
	return strings.ReplaceAll(unlinked.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

func readPage(t *testing.T, path string) page {
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	p := page{path: path, text: codeBlock.ReplaceAllString(string(b), ""), lines: strings.Count(string(b), "\n")}
	for _, m := range heading.FindAllStringSubmatch(p.text, -1) {
		p.anchors = append(p.anchors, anchorOf(m[2]))
		if m[1] == "##" {
			p.sections = append(p.sections, m[2])
		}
	}
	return p
}

// pages returns the Markdown files that patterns below the repository's root name.
func pages(t *testing.T, patterns ...string) (found []page) {
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no page is named %s: %v", pattern, err)
		}
		for _, path := range paths {
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, readPage(t, name))
		}
	}
	return found
}

// TestArchitecturePages: each page is short, begins with a table of contents, and is named
// by the overview.
func TestArchitecturePages(t *testing.T) {
	overview := readPage(t, "docs/architecture.md")
	for _, p := range pages(t, "docs/architecture.md", "docs/architecture/*.md") {
		if p.lines > pageLinesMax {
			t.Errorf("%s has %d lines, at most %d are allowed: split it", p.path, p.lines, pageLinesMax)
		}
		for _, s := range p.sections {
			if entry := fmt.Sprintf("- [%s](#%s)", s, anchorOf(s)); s != "Contents" && !strings.Contains(p.text, entry) {
				t.Errorf("%s: its table of contents lacks %s", p.path, entry)
			}
		}
		if name, below := strings.CutPrefix(p.path, "docs/"); below && p.path != overview.path && !strings.Contains(overview.text, "]("+name+")") {
			t.Errorf("%s does not name %s", overview.path, p.path)
		}
	}
}

// TestOverviewNamesPackages: the table of packages in the overview is complete.
func TestOverviewNamesPackages(t *testing.T) {
	overview := readPage(t, "docs/architecture.md")
	for _, s := range sources(t) {
		name := filepath.Base(s.dir)
		helper := name == "cmd" || strings.HasSuffix(name, "test")
		if strings.HasPrefix(s.dir, "internal/") && !helper && !strings.Contains(overview.text, "`"+name+"`") {
			t.Errorf("%s does not name package %s", overview.path, name)
		}
	}
}

// TestLinks: a link between pages leads to a file, and to a heading that is there.
func TestLinks(t *testing.T) {
	for _, p := range pages(t, "*.md", "docs/*.md", "docs/*/*.md") {
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			target, anchor := m[1], m[2]
			if strings.Contains(target, "://") {
				continue
			}
			to := p
			if target != "" {
				path := filepath.Join(filepath.Dir(p.path), target)
				if _, err := os.Stat(filepath.Join(root, path)); err != nil {
					t.Errorf("%s: the link to %s leads nowhere", p.path, target)
					continue
				}
				if filepath.Ext(path) != ".md" {
					continue
				}
				to = readPage(t, path)
			}
			if anchor != "" && !slices.Contains(to.anchors, anchor) {
				t.Errorf("%s: %s has no heading %q", p.path, to.path, anchor)
			}
		}
	}
}

// TestSummary: the site's order of pages has each page, once.
func TestSummary(t *testing.T) {
	named := map[string]int{}
	summary := readPage(t, "docs/SUMMARY.md")
	for _, m := range link.FindAllStringSubmatch(summary.text, -1) {
		named["docs/"+m[1]]++
	}
	for _, p := range pages(t, "docs/*.md", "docs/*/*.md") {
		if n := named[p.path]; n != 1 && p.path != summary.path {
			t.Errorf("%s names %s %d times, want once", summary.path, p.path, n)
		}
	}
}

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	// testName is a test as the pages name it: its package, its name, whether others begin so, too ("…"), and a part of it.
	testName = regexp.MustCompile("`(?:[a-z0-9/]*?([a-z0-9]+)\\.)?((?:Test|Fuzz|Benchmark)[A-Z]\\w*)(…)?(?:/[\\w/]+)?`")
)

// codeName is what a page names of a package: `role.Machine`, `agent.openLog`. A setting has no capital.
var codeName = regexp.MustCompile("`([a-z0-9]+)\\.([A-Za-z]*[A-Z]\\w*)")

// TestNamedCode: the names of a package that the pages about the architecture and the simulator mention are declared
// in it.
func TestNamedCode(t *testing.T) {
	in := map[string]map[string]bool{} // by package
	for _, s := range sources(t) {
		names := in[s.file.Name.Name]
		if names == nil {
			names = map[string]bool{}
			in[s.file.Name.Name] = names
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						names[spec.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range spec.Names {
							names[n.Name] = true
						}
					}
				}
			}
		}
	}
	for _, p := range pages(t, "docs/architecture.md", "docs/architecture/*.md", "docs/simulation.md", "docs/mutations.md") {
		for _, m := range codeName.FindAllStringSubmatch(p.text, -1) {
			if names := in[m[1]]; names != nil && !names[m[2]] {
				t.Errorf("%s: package %s has no %s", p.path, m[1], m[2])
			}
		}
	}
}

// TestNamedTests: each test that a page names exists in the package that the page names. If a test was renamed, its
// row in bugs.md would no longer say which test holds the fix.
func TestNamedTests(t *testing.T) {
	in := map[string][]string{} // the packages with a test of this name
	for _, dir := range []string{"internal", "test", "lab", "packaging"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
				in[m[1]] = append(in[m[1]], filepath.Base(filepath.Dir(path)))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pages(t, "*.md", "docs/*.md", "docs/*/*.md") {
		for _, m := range testName.FindAllStringSubmatch(p.text, -1) {
			there := in[m[2]]
			for name, packages := range in {
				if m[3] != "" && strings.HasPrefix(name, m[2]) {
					there = append(there, packages...)
				}
			}
			if len(there) == 0 || m[1] != "" && !slices.Contains(there, m[1]) {
				t.Errorf("%s: there is no test %s (there is one in %v)", p.path, m[0], there)
			}
		}
	}
}
