package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// dumpOptions is what the command line says.
type dumpOptions struct {
	source         logSource
	from, to       uint64
	gtid           string
	events, asJSON bool
}

func newLogDumpCommand() *cobra.Command {
	var o dumpOptions
	cmd := &cobra.Command{
		Use:   "dump [--config FILE | --dir DIR]",
		Short: "Print the entries of a node's log",
		Long: `Prints the entries of a node's log: index, term, kind, epoch and the number in the epoch,
size, and the transactions with their commit times (by the primary's clock, in UTC). It
reads the files: the node may run or not.

--events also prints the events of each transaction: type, size, and the text of statements,
shortened. To see the rows, run "mysqlbinlog -v" on the segment.

--json prints one object per line: an entry, and with --events after it its events.`,
		Example: `  quorate log dump --config node.toml --from 1200 --until-index 1300
  quorate log dump --config node.toml --events \
      --gtid 3e11fa47-71ca-11e1-9e33-c80aa9429562:23
  quorate log dump --dir /var/lib/quorate/log --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := untilIndex(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.source.flags(cmd)
	o.source.uncommittedFlag(cmd)
	oldNames(cmd, map[string]string{"to": "until-index"})
	cmd.Flags().Uint64Var(&o.from, "from", 0, "the `index` of the first entry")
	cmd.Flags().Uint64Var(&o.to, "until-index", 0, "the `index` of the last entry")
	cmd.Flags().StringVar(&o.gtid, "gtid", "", "only the entry with the transaction of this `GTID`")
	cmd.Flags().BoolVar(&o.events, "events", false, "print the events, too")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func (o *dumpOptions) run(ctx context.Context, out io.Writer) error {
	if o.gtid != "" && (o.from != 0 || o.to != 0) {
		return usage(errors.New("--gtid names one entry: --from and --until-index do not go with it"))
	}
	if o.to != 0 && o.to < o.from {
		return usage(fmt.Errorf("--until-index %d is before --from %d", o.to, o.from))
	}
	var id gtid.GTID
	if o.gtid != "" {
		var err error
		if id, err = gtid.ParseGTID(o.gtid); err != nil {
			return usage(fmt.Errorf("--gtid must be a GTID, such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:23, not %q", o.gtid))
		}
	}
	in, err := o.source.open()
	if err != nil {
		return err
	}
	if o.gtid != "" {
		if o.from, err = in.Find(id); err != nil {
			return err
		}
		o.to = o.from
	}
	buffered := bufio.NewWriter(out)
	printer := entryPrinter(&textEntries{buffered})
	if o.asJSON {
		printer = &jsonEntries{json.NewEncoder(buffered)}
	}
	err = in.Entries(o.from, o.to, func(e *seglog.InspectedEntry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return o.entry(printer, e)
	})
	if flushErr := buffered.Flush(); err == nil && flushErr != nil {
		err = fmt.Errorf("print entries: %w", flushErr)
	}
	return err
}

// entry prints an entry with its transactions and events.
func (o *dumpOptions) entry(p entryPrinter, e *seglog.InspectedEntry) error {
	if err := p.entry(e); err != nil {
		return err
	}
	for i := range e.Transactions {
		t := &e.Transactions[i]
		if err := p.transaction(t); err != nil {
			return err
		}
		if !o.events {
			continue
		}
		if err := e.Events(t, func(event seglog.InspectedEvent) error { return p.event(e, t, &event) }); err != nil {
			return err
		}
	}
	return nil
}

// entryPrinter prints a walk over the log.
type entryPrinter interface {
	entry(*seglog.InspectedEntry) error
	transaction(*seglog.InspectedTransaction) error
	event(*seglog.InspectedEntry, *seglog.InspectedTransaction, *seglog.InspectedEvent) error
}

// entryKind names what an entry is.
func entryKind(e *seglog.InspectedEntry) string {
	switch {
	case e.Type != 0:
		return "conf-change"
	case e.Problem != nil:
		return "unknown"
	}
	return e.Header.Kind.String()
}

// entryDetail has the further details of an entry.
func entryDetail(e *seglog.InspectedEntry) string {
	switch {
	case e.Problem != nil:
		return oneLine(e.Problem.Error())
	case e.Epoch.Primary != "":
		return fmt.Sprintf("primary %s, MySQL %s", e.Epoch.Primary, e.Epoch.ServerVersion)
	case e.State != nil:
		return stateDetail(e.State)
	}
	return ""
}

// stateDetail says what was changed in the cluster state, and by whom.
func stateDetail(body []byte) string {
	var c cluster.StateChange
	if err := json.Unmarshal(body, &c); err != nil {
		return oneLine(err.Error()) // it cannot happen: the inspector has read the body before
	}
	return oneLine(fmt.Sprintf("version %d by %s: %s", c.State.Version, c.Change.By, c.Change))
}

// textEntries prints for people: an entry, its transactions and their events are
// each a little further to the right.
type textEntries struct{ out io.Writer }

func (p *textEntries) entry(e *seglog.InspectedEntry) error {
	place := "-"
	if e.Header.Term != 0 && e.State == nil {
		place = fmt.Sprintf("%d/%d", e.Header.Term, e.Header.Number)
	}
	line := fmt.Sprintf("%-10d term %-5d %-12s %-12s %-8s %s", e.Index, e.Term, entryKind(e), place, units.Size(e.Bytes), entryDetail(e))
	_, err := fmt.Fprintln(p.out, trimRight(line))
	return err
}

func (p *textEntries) transaction(t *seglog.InspectedTransaction) error {
	_, err := fmt.Fprintf(p.out, "    %s  %s  %s\n", t.GTID, t.Time.UTC().Format(microTime), units.Size(t.Bytes))
	return err
}

// microTime is units.TimeLayout with the microseconds that the binlog has.
const microTime = "2006-01-02 15:04:05.000000 UTC"

func (p *textEntries) event(_ *seglog.InspectedEntry, _ *seglog.InspectedTransaction, e *seglog.InspectedEvent) error {
	line := fmt.Sprintf("        %-20s %-8s %s", eventName(e.Head.Type()), units.Size(int64(e.Head.Length())), queryText(e))
	_, err := fmt.Fprintln(p.out, trimRight(line))
	return err
}

func trimRight(line string) string {
	for len(line) > 0 && line[len(line)-1] == ' ' {
		line = line[:len(line)-1]
	}
	return line
}

// jsonEntries prints for programs.
type jsonEntries struct{ out *json.Encoder }

type entryLine struct {
	Index        uint64            `json:"index"`
	Term         uint64            `json:"term"`
	Kind         string            `json:"kind"`
	Epoch        uint64            `json:"epoch,omitempty"`
	Number       uint64            `json:"number,omitempty"`
	Bytes        int64             `json:"bytes"`
	Segment      string            `json:"segment"`
	Offset       int64             `json:"offset"`
	Primary      string            `json:"primary,omitempty"`
	Version      string            `json:"server_version,omitempty"`
	State        json.RawMessage   `json:"state,omitempty"`
	Transactions []transactionLine `json:"transactions,omitempty"`
	Problem      string            `json:"problem,omitempty"`
}

type transactionLine struct {
	GTID   string    `json:"gtid"`
	Time   time.Time `json:"time"`
	Offset int64     `json:"offset"`
	Bytes  int64     `json:"bytes"`
}

type eventLine struct {
	Index  uint64 `json:"index"`
	GTID   string `json:"gtid"`
	Event  string `json:"event"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Text   string `json:"text,omitempty"`
}

func (p *jsonEntries) entry(e *seglog.InspectedEntry) error {
	line := entryLine{
		Index: e.Index, Term: e.Term, Kind: entryKind(e), Epoch: e.Header.Term, Number: e.Header.Number,
		Bytes: e.Bytes, Segment: e.Segment, Offset: e.Offset, Primary: e.Epoch.Primary, Version: e.Epoch.ServerVersion,
		State: e.State,
	}
	if e.State != nil {
		line.Epoch = 0 // the entry belongs to no epoch
	}
	if e.Problem != nil {
		line.Problem = e.Problem.Error()
	}
	for i := range e.Transactions {
		t := &e.Transactions[i]
		line.Transactions = append(line.Transactions, transactionLine{t.GTID.String(), t.Time, t.Offset, t.Bytes})
	}
	return p.out.Encode(line)
}

func (p *jsonEntries) transaction(*seglog.InspectedTransaction) error { return nil }

func (p *jsonEntries) event(e *seglog.InspectedEntry, t *seglog.InspectedTransaction, event *seglog.InspectedEvent) error {
	return p.out.Encode(eventLine{
		e.Index, t.GTID.String(), eventName(event.Head.Type()), event.Offset, int64(event.Head.Length()), queryText(event),
	})
}

// queryTextMax is how much of a statement is printed.
const queryTextMax = 100

// queryText returns the text of a QUERY event, shortened.
func queryText(e *seglog.InspectedEvent) string {
	if e.Head.Type() != binlog.TypeQuery {
		return ""
	}
	q, err := binlog.ParseQuery(e.Head)
	if err != nil {
		return ""
	}
	text := []rune(oneLine(q.Text[:min(len(q.Text), 4*queryTextMax)]))
	if len(text) > queryTextMax {
		return string(text[:queryTextMax]) + "…"
	}
	return string(text)
}

// eventName returns the name of an event's type as MySQL's documentation has it.
func eventName(t binlog.Type) string {
	switch t {
	case binlog.TypeQuery:
		return "QUERY"
	case binlog.TypeIntvar:
		return "INTVAR"
	case binlog.TypeAppendBlock:
		return "APPEND_BLOCK"
	case binlog.TypeDeleteFile:
		return "DELETE_FILE"
	case binlog.TypeRand:
		return "RAND"
	case binlog.TypeUserVar:
		return "USER_VAR"
	case binlog.TypeXID:
		return "XID"
	case binlog.TypeBeginLoadQuery:
		return "BEGIN_LOAD_QUERY"
	case binlog.TypeExecuteLoadQuery:
		return "EXECUTE_LOAD_QUERY"
	case binlog.TypeTableMap:
		return "TABLE_MAP"
	case binlog.TypeRowsQuery:
		return "ROWS_QUERY"
	case binlog.TypeWriteRows:
		return "WRITE_ROWS"
	case binlog.TypeUpdateRows:
		return "UPDATE_ROWS"
	case binlog.TypeDeleteRows:
		return "DELETE_ROWS"
	case binlog.TypePartialUpdateRows:
		return "PARTIAL_UPDATE_ROWS"
	case binlog.TypeGTID:
		return "GTID"
	case binlog.TypeGTIDTagged:
		return "GTID_TAGGED"
	case binlog.TypeViewChange:
		return "VIEW_CHANGE"
	case binlog.TypeXAPrepare:
		return "XA_PREPARE"
	case binlog.TypeTransactionPayload:
		return "TRANSACTION_PAYLOAD"
	}
	return fmt.Sprintf("TYPE_%d", t)
}
