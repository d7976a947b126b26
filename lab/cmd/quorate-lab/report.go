package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/lab/report"
	"github.com/quorate/quorate/lab/result"
)

// The files beside results.jsonl.
const (
	reportFile  = "report.html"
	summaryFile = "summary.md"
)

func reportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report RUN",
		Short: "Make the report of a run again from its results",
		Long: `Make report.html and summary.md again from results.jsonl. RUN is a run's directory or its results.jsonl. The HTML page
needs nothing else: no network, no other file.`,
		Example: "  quorate-lab report lab-results/2026-11-21",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			res, dir, err := readRun(args[0])
			if err != nil {
				return err
			}
			if err := writeReports(dir, res); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d rows: %s, %s\n", len(res.Rows), filepath.Join(dir, reportFile), filepath.Join(dir, summaryFile))
			return nil
		},
	}
}

func compareCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "compare RUN RUN",
		Short: "Say what changed from one run to another",
		Long: `Say, as Markdown, which figures changed from the first run to the second, and by how much. A figure changed if the
repetitions of the two runs do not touch; single repetitions are taken to be within 10 %.`,
		Example: "  quorate-lab compare lab-results/before lab-results/after",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var runs [2]report.Run
			for i, arg := range args {
				res, dir, err := readRun(arg)
				if err != nil {
					return err
				}
				runs[i] = report.Run{Name: filepath.Base(dir), Results: res}
			}
			if runs[0].Name == runs[1].Name {
				runs[0].Name, runs[1].Name = args[0], args[1]
			}
			return report.Compare(cmd.OutOrStdout(), runs[0], runs[1])
		},
	}
}

// readRun reads the results in a run's directory, or of a file.
func readRun(path string) (res result.Results, dir string, err error) {
	dir = path
	if info, statErr := os.Stat(path); statErr == nil && !info.IsDir() {
		dir = filepath.Dir(path)
	} else {
		path = filepath.Join(path, result.FileName)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return res, dir, fmt.Errorf("name the run's directory: %w", err)
	}
	res, err = result.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return res, dir, fmt.Errorf("no results in %s: name the directory of a run, or its %s", dir, result.FileName)
	}
	return res, dir, err
}

// writeReports writes the HTML page and the summary into a run's directory.
func writeReports(dir string, res result.Results) error {
	if err := replaceFile(filepath.Join(dir, reportFile), func(w io.Writer) error { return report.HTML(w, res) }); err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, summaryFile), func(w io.Writer) error { return report.Markdown(w, res) })
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("create report: %w", err)
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
