package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/testkit/ledger"
)

// demoResult is what `quorate demo --json` prints. The names are an interface.
type demoResult struct {
	OK              bool    `json:"ok"`
	Nodes           int     `json:"nodes"`
	Writers         int     `json:"writers"`
	DurationSeconds float64 `json:"duration_s"`
	MySQLVersion    string  `json:"mysql_version"`
	// Rows: as the writers were told, and as the servers have them.
	Acknowledged   int `json:"acknowledged"`
	Unknown        int `json:"unknown"`
	UnknownPresent int `json:"unknown_present"`
	Failed         int `json:"failed"`
	Lost           int `json:"lost"`
	Diverged       int `json:"diverged"`
	// WriteGapMs is the longest time without an acknowledgement around the
	// kill. FailoverMs is the time from the kill to the new primary. RejoinMs is the time
	// from the dead node's restart until it has applied all that was committed at that restart.
	WriteGapMs int64 `json:"write_gap_ms"`
	FailoverMs int64 `json:"failover_ms"`
	RejoinMs   int64 `json:"rejoin_ms"`
}

// fill copies the figures of the ledger's verdict.
func (r *demoResult) fill(o demoOptions, v ledger.Result) {
	r.Nodes, r.Writers = o.nodes, o.writers
	r.Acknowledged, r.Failed = v.Acknowledged, v.Failed
	r.Unknown, r.UnknownPresent = v.Unknown, v.UnknownPresent
	r.Lost, r.Diverged = len(v.Lost), len(v.Diverged)
	r.OK = v.OK() && v.Acknowledged > 0
}

// line is the closing line of figures.
func (r *demoResult) line() string {
	return fmt.Sprintf("acknowledged %d  lost %d  diverged %d  write gap %d ms  rejoin %.1f s",
		r.Acknowledged, r.Lost, r.Diverged, r.WriteGapMs, float64(r.RejoinMs)/1000)
}

// demoPrinter prints the steps as they happen, with the time since the start.
type demoPrinter struct {
	start  time.Time
	steps  io.Writer // where people read
	json   io.Writer // where the object goes; nil = the closing line instead
	colour bool
}

func newDemoPrinter(cmd *cobra.Command, asJSON bool) *demoPrinter {
	p := &demoPrinter{start: time.Now(), steps: cmd.OutOrStdout()}
	if asJSON {
		p.steps, p.json = cmd.ErrOrStderr(), cmd.OutOrStdout()
	}
	p.colour = coloured(p.steps)
	return p
}

// coloured tells whether output to stream may have colours.
func coloured(stream any) bool { return isTerminal(stream) && os.Getenv("NO_COLOR") == "" }

// isTerminal says whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	if o, ok := stream.(*output); ok {
		stream = o.Writer
	}
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// ANSI colours (ECMA-48 SGR).
const (
	ansiDim    = "2"
	ansiRed    = "31"
	ansiGreen  = "32"
	ansiYellow = "33"
)

func (p *demoPrinter) paint(code, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// The demo can do nothing about output that cannot be written, so the
// printers below ignore such errors, as every command-line program does with prose.

func (p *demoPrinter) step(format string, args ...any) {
	at := fmt.Sprintf("%6.1f s", time.Since(p.start).Seconds())
	fmt.Fprintf(p.steps, "%s  %s\n", p.paint(ansiDim, at), fmt.Sprintf(format, args...))
}

func (p *demoPrinter) bad(format string, args ...any) {
	p.step("%s", p.paint(ansiRed, fmt.Sprintf(format, args...)))
}

func (p *demoPrinter) plain(format string, args ...any) {
	fmt.Fprintf(p.steps, format+"\n", args...)
}

// result prints the figures: the JSON object, or the closing line.
func (p *demoPrinter) result(r demoResult) error {
	if p.json != nil {
		if err := json.NewEncoder(p.json).Encode(r); err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
		return nil
	}
	code := ansiGreen
	if !r.OK {
		code = ansiRed
	}
	p.plain("%s", p.paint(code, r.line()))
	return nil
}

// shortTime prints a duration as people read it: 812 ms, 4.1 s.
func shortTime(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
