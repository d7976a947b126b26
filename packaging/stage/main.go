package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/quorate/quorate/internal/cli"
)

func main() {
	version := flag.String("version", "", "what git describe says")
	commits := flag.Int("commits", 0, "how many commits led to it")
	date := flag.Int64("date", 0, "when it was committed, in seconds since 1970")
	out := flag.String("out", "", "the directory to write to: it becomes /usr")
	flag.Parse()
	if *version == "" || *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	v := packageVersion(*version, *commits)
	if err := write(*out, v, time.Unix(*date, 0).UTC()); err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		os.Exit(1)
	}
	fmt.Println(v)
}

var (
	described = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+)(-(?:alpha|beta|rc)[0-9.]*)?(?:-([0-9]+)-(g[0-9a-f]+))?(-dirty)?$`)
	listed    = regexp.MustCompile(`(?m)^  `)
)

// packageVersion turns what git describe says into a version that dpkg and rpm take, and order as the
// commits are: v1.2.0-rc1 comes before v1.2.0, which comes before what was committed later. Without a
// tag it is 0.0.0, and the number of commits orders it.
func packageVersion(version string, commits int) string {
	m := described.FindStringSubmatch(version)
	if m == nil {
		return fmt.Sprintf("0.0.0+%d.%s", commits, strings.ReplaceAll(version, "-", "."))
	}
	v := m[1]
	if m[2] != "" {
		v += "~" + m[2][1:]
	}
	var later []string
	if m[3] != "" {
		later = append(later, m[3], m[4])
	}
	if m[5] != "" {
		later = append(later, "dirty")
	}
	if later != nil {
		v += "+" + strings.Join(later, ".")
	}
	return v
}

// write writes the files below dir.
func write(dir, version string, date time.Time) error {
	root := cli.Command(version)
	// A page would say when it was made, not when its commit was.
	root.DisableAutoGenTag = true
	man := filepath.Join(dir, "share/man/man1")
	examples := filepath.Join(dir, "share/doc/quorate/examples")
	completions := map[string]func(string) error{
		"share/bash-completion/completions/quorate":    func(file string) error { return root.GenBashCompletionFileV2(file, true) },
		"share/zsh/site-functions/_quorate":            root.GenZshCompletionFile,
		"share/fish/vendor_completions.d/quorate.fish": func(file string) error { return root.GenFishCompletionFile(file, true) },
	}
	for _, d := range []string{man, examples} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for name, generate := range completions {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := generate(file); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	topic, _, err := root.Find([]string{"exit-codes"})
	if err != nil {
		return err
	}
	root.Long += "\n\n" + topic.Long
	indent(root)
	header := &doc.GenManHeader{Section: "1", Date: &date, Source: "quorate " + version, Manual: "quorate"}
	if err := doc.GenManTree(root, header, man); err != nil {
		return fmt.Errorf("write the man pages: %w", err)
	}
	file, err := os.Create(filepath.Join(examples, "node.toml"))
	if err != nil {
		return err
	}
	root.SetArgs([]string{"config", "example"})
	root.SetOut(file)
	if err := root.Execute(); err != nil {
		return fmt.Errorf("write the example: %w", err)
	}
	return file.Close()
}

// indent has man pages keep the lines of lists and examples in the long help of cmd, and of the commands
// below it: in Markdown four spaces make a block.
func indent(cmd *cobra.Command) {
	cmd.Long = listed.ReplaceAllString(cmd.Long, "    ")
	for _, sub := range cmd.Commands() {
		indent(sub)
	}
}
