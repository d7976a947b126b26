package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

const (
	// topEvery is the time between two views. topWindow is over how many of them rates are computed: a
	// node's figures are up to a second old, and come in steps of half a second.
	topEvery  = time.Second
	topWindow = 5
)

func newTopCommand() *cobra.Command {
	var path, addr string
	var once bool
	cmd := &cobra.Command{
		Use:   "top [--once]",
		Short: "Watch the cluster live: rates, lag, log, health",
		Long: `Shows the cluster as one node sees it, each second: the primary, how many failures are
survived, a line for each node, and what there is to say of the nodes. Press q to end it.

TPS is the number of transactions per second, over five seconds: of the primary what it
commits, of a replica what its mysqld applies. ENTRIES/S is how many entries per second the
node's log gets. WAITING is how many sessions of the primary wait for an ACK at the moment.
"commit" is what a commit takes on the primary beside mysqld's own time. Its stages follow
one another: from the binlog to the tap, to Raft (propose), to the primary's disk (fsync),
to a majority's disks, to the ACK.

Without a terminal, the view is printed again and again, until Ctrl-C. --once looks for two
seconds, prints the view once, and ends.

Exit code 0. With --once: 1 if the agent does not answer, 3 if there is no primary.`,
		Example: `  quorate top
  quorate top --once --config node.toml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := statusAddress(path, addr)
			if err != nil {
				return err
			}
			t := &top{addr: target, out: cmd.OutOrStdout(), every: topEvery}
			switch screen := openScreen(cmd.InOrStdin(), cmd.OutOrStdout()); {
			case once:
				return t.once(cmd.Context())
			case screen == nil:
				return t.print(cmd.Context())
			default:
				defer screen.close()
				return t.draw(cmd.Context(), screen)
			}
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&addr, "addr", "", "`host:port` of the agent's api, or its control socket")
	cmd.Flags().BoolVar(&once, "once", false, "print the view once, as text")
	return cmd
}

// top is a view that is drawn again and again.
type top struct {
	addr    string
	out     io.Writer
	every   time.Duration
	samples []topSample
}

// topSample is the result of one look at the agent.
type topSample struct {
	at time.Time
	st status.Cluster
}

// look asks the agent and keeps the answer. If the agent does not answer, its error is shown in place of the view.
func (t *top) look(ctx context.Context) error {
	st, err := fetchStatus(ctx, t.addr)
	if err != nil {
		t.samples = nil
		return err
	}
	t.samples = append(t.samples, topSample{time.Now(), st})
	t.samples = t.samples[max(0, len(t.samples)-topWindow-1):]
	return nil
}

func (t *top) once(ctx context.Context) error {
	for i := range 3 {
		if i > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(t.every):
			}
		}
		if err := t.look(ctx); err != nil {
			return err
		}
	}
	if err := printText(t.out, topText(topView(t.samples), 0, 0, coloured(t.out))); err != nil {
		return err
	}
	if st := t.samples[len(t.samples)-1].st; st.Primary == "" {
		return &exitError{code: exitNoPrimary}
	}
	return nil
}

// print shows the view as text, again and again.
func (t *top) print(ctx context.Context) error {
	for {
		text := ""
		if err := t.look(ctx); err != nil && ctx.Err() == nil {
			text = clockOf(time.Now()) + " " + err.Error() + "\n"
		} else if err == nil {
			text = topText(topView(t.samples), 0, 0, false) + "\n"
		}
		if err := printText(t.out, text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(t.every):
		}
	}
}

// draw shows the view on a terminal until q is pressed. It writes each frame in one piece over the frame before, so
// that nothing flickers.
func (t *top) draw(ctx context.Context, s *screen) error {
	var looking sync.WaitGroup
	defer looking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	looked := make(chan error, 1)
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case key := <-s.keys: // also while the agent does not answer
			if key == 'q' || key == 'Q' || key == ctrlC {
				return nil
			}
		case <-next.C: // only one look runs at a time
			looking.Go(func() { looked <- t.look(ctx) })
		case err := <-looked:
			if err := t.show(s, err); err != nil {
				return err
			}
			next.Reset(t.every)
		}
	}
}

// show draws what a look has found, or why it found nothing.
func (t *top) show(s *screen, failed error) error {
	lines := []topLine{{}, {text: "q quits"}}
	if failed != nil {
		lines = append([]topLine{{text: oneLine(failed.Error()), code: ansiRed}}, lines...)
	} else {
		lines = append(topView(t.samples), lines...)
	}
	columns, rows := s.size()
	return s.frame(topText(lines, columns, rows, os.Getenv("NO_COLOR") == ""))
}

// topLine is a line of the view, and its colour.
type topLine struct{ text, code string }

// topText joins the lines of a view, cut to the size of a terminal; 0 columns or rows = not cut.
func topText(lines []topLine, columns, rows int, colour bool) string {
	if rows > 0 && len(lines) > rows {
		lines = lines[:rows]
	}
	var text strings.Builder
	for _, l := range lines {
		shown := strings.TrimRight(l.text, " ")
		if runes := utf8.RuneCountInString(shown); columns > 0 && runes > columns {
			shown = string([]rune(shown)[:max(columns-1, 0)]) + "…"
		}
		if colour && l.code != "" && shown != "" {
			shown = "\x1b[" + l.code + "m" + shown + "\x1b[0m"
		}
		text.WriteString(shown + "\n")
	}
	return text.String()
}

// topView makes the view of the newest of some samples, with rates since the oldest.
func topView(samples []topSample) (lines []topLine) {
	first, last := samples[0], samples[len(samples)-1]
	st := last.st
	lines = append(lines, topLine{text: clockOf(last.at)})
	for _, s := range st.Sentences() {
		lines = append(lines, topLine{s.Text, levelColours()[s.Level]})
	}
	if line := commitsLine(st); line != "" {
		lines = append(lines, topLine{text: line})
	}
	lines = append(lines, topLine{})
	var rows [][]string
	for _, n := range st.Nodes {
		rows = append(rows, topRow(n, first, last))
	}
	text := table("NODE\tROLE\tTPS\tWAITING\tLAG\tENTRIES/S\tLOG\tMYSQLD", rows)
	for i, row := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		code := "1" // bold
		if i > 0 {
			code = nodeColour(st.Nodes[i-1])
		}
		lines = append(lines, topLine{row, code})
	}
	lines = append(lines, topLine{})
	for _, n := range st.Nodes {
		for _, about := range st.AboutNode(n) {
			lines = append(lines, topLine{text: n.Name + ": " + about})
		}
	}
	if change := lastChangeLine(st); change != "" {
		lines = append(lines, topLine{text: strings.TrimRight(change, "\n")})
	}
	return lines
}

// commitsLine says how long a commit takes on the primary, and how long each stage; "" = not known.
func commitsLine(st status.Cluster) string {
	for _, n := range st.Nodes {
		c := n.Commits
		if c == nil || n.Name != st.Primary {
			continue
		}
		all := c.ReceiveSeconds + c.ProposeSeconds + c.FsyncSeconds + c.MajoritySeconds + c.ReleaseSeconds
		if all == 0 {
			return "" // there was no commit
		}
		return fmt.Sprintf("commit %.2f ms: tap %.2f, propose %.2f, fsync %.2f, majority %.2f, ACK %.2f",
			1000*all, 1000*c.ReceiveSeconds, 1000*c.ProposeSeconds, 1000*c.FsyncSeconds, 1000*c.MajoritySeconds, 1000*c.ReleaseSeconds)
	}
	return ""
}

// topRow returns the cells of one of the nodes.
func topRow(n status.Node, first, last topSample) []string {
	cells := statusRow(n, last.st.Nodes) // NODE KIND ROLE WEIGHT LOG SIZE LAG MYSQLD
	role, size, lag, mysqld := cells[2], cells[5], cells[6], cells[7]
	tps, entries, waiting := "-", "-", "-"
	i := slices.IndexFunc(first.st.Nodes, func(o status.Node) bool { return o.ID == n.ID })
	if i >= 0 && n.Reachable {
		before, took := first.st.Nodes[i], seen(last, n).Sub(seen(first, first.st.Nodes[i]))
		if took > 0 && n.LogLast >= before.LogLast && before.LogLast > 0 {
			entries = perSecond(float64(n.LogLast-before.LogLast), took)
		}
		if was, is := transactions(before), transactions(n); took > 0 && was > 0 && is >= was && n.Kind != cluster.KindLogger {
			tps = perSecond(float64(is-was), took)
		}
	}
	if n.Role == status.RolePrimary && n.Reachable {
		waiting = fmt.Sprint(n.WaitingSessions)
	}
	return []string{n.Name, role, tps, waiting, lag, entries, size, mysqld}
}

// seen is the time at which a node's figures in a sample were true.
func seen(s topSample, n status.Node) time.Time {
	return s.at.Add(-time.Duration(n.AgeMs) * time.Millisecond)
}

// transactions is the number of transactions that a node's mysqld has; 0 = not known.
func transactions(n status.Node) uint64 {
	set, err := gtid.ParseSet(n.GTIDExecuted)
	if err != nil {
		return 0
	}
	return set.Count()
}

func perSecond(n float64, took time.Duration) string {
	rate := n / took.Seconds()
	if rate < 10 {
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}
