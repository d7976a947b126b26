package mysqlwire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
)

const (
	// sqlBufferBytes is the buffer of each direction. A row that is edited must fit into it. Only rows of SHOW VARIABLES
	// are edited, and mysqld cuts their values at 1024 characters.
	sqlBufferBytes = 16 << 10
	// sqlWriteTimeout is how long a reader may pause while it reads mysqld's rows: tools pause
	// within a table.
	sqlWriteTimeout = 10 * time.Minute
	// sqlSettings begin a session in mysqld. net_write_timeout is sqlWriteTimeout.
	sqlSettings = "SET SESSION net_write_timeout = 600, SESSION transaction_read_only = ON"
)

// sqlServer is a reader's session in the local mysqld. It has the same capabilities as the reader's connection, so
// packets are passed on unchanged. One goroutine uses it; another one may close conn.
type sqlServer struct {
	conn net.Conn
	in   *bufio.Reader
	// stop undoes the AfterFunc that closes the connection when the feed ends.
	stop func() bool
	// locked says that the reader has locked tables, which may keep mysqld from applying more.
	locked bool
	// id is its number in mysqld.
	id string
}

// dialSQL begins a session in the local mysqld with the reader's account there, within handshakeTimeout.
func dialSQL(ctx context.Context, dial func(context.Context) (net.Conn, error), user, password string, charset byte) (*sqlServer, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	q := &sqlServer{conn: conn, in: bufio.NewReaderSize(conn, sqlBufferBytes)}
	err = handshake(ctx, conn, func(w *wire) error {
		err := loginWith(w, user, password, charset)
		if err == nil {
			err = q.do(append([]byte{comQuery}, sqlSettings...))
		}
		if err == nil {
			q.id, err = q.value("SELECT CONNECTION_ID()")
		}
		return err
	})
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("log in to mysqld: %w", err)
	}
	q.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return q, nil
}

func (q *sqlServer) close() {
	q.stop()
	_ = q.conn.Close()
}

// send sends a command.
func (q *sqlServer) send(command []byte) error {
	var out []byte
	for sequence := uint8(0); ; sequence++ {
		n := min(len(command), packetBytesMax)
		out = append(appendPacketHeader(out, n, sequence), command[:n]...)
		if command = command[n:]; n < packetBytesMax {
			break
		}
	}
	if _, err := q.conn.Write(out); err != nil {
		return fmt.Errorf("ask mysqld: %w", err)
	}
	return nil
}

// do sends a command that has no result.
func (q *sqlServer) do(command []byte) error {
	if err := q.send(command); err != nil {
		return err
	}
	return (&wire{in: q.packets()}).expectOK()
}

// packets returns a reader for short answers.
func (q *sqlServer) packets() *packetReader {
	return &packetReader{r: q.in, payloadBytesMax: commandBytesMax}
}

// value runs a query that returns one value; NULL gives "".
func (q *sqlServer) value(query string) (value string, err error) {
	if err := q.send(append([]byte{comQuery}, query...)); err != nil {
		return "", err
	}
	in := q.packets()
	for ends, rows := 0, 0; ends < 2; { // EOF comes behind the columns, and again behind the rows
		payload, err := in.next()
		switch {
		case err != nil:
			return "", fmt.Errorf("ask mysqld: %w", err)
		case len(payload) > 0 && payload[0] == headerErr:
			return "", parseServerError(payload)
		case isEOF(payload):
			ends++
		case ends == 1:
			text, ok := firstString(payload)
			if rows++; !ok || rows > 1 {
				return "", fmt.Errorf("%w: no value in a row", ErrMalformed)
			}
			value = string(text)
		}
	}
	return value, nil
}

// relay passes answers on from mysqld to a reader.
type relay struct {
	q   *sqlServer
	out *bufio.Writer
	// edit changes a row, which fits into the buffer; nil = no row is changed. more has rows that are added at
	// the end.
	edit func(row []byte) []byte
	more [][]byte
	// sequence is the number of the next packet.
	sequence uint8
}

func (q *sqlServer) relayTo(out io.Writer) *relay {
	return &relay{q: q, out: bufio.NewWriterSize(out, sqlBufferBytes), sequence: 1}
}

// head is the beginning of a packet that is about to be passed on.
type head struct {
	n     int
	first [9]byte
}

func (h head) isEOF() bool   { return h.n > 0 && h.n < 9 && h.first[0] == headerEOF }
func (h head) isError() bool { return h.n > 0 && h.first[0] == headerErr }

// peek returns the beginning of the next packet without consuming it.
func (r *relay) peek() (h head, err error) {
	b, err := r.q.in.Peek(packetHeaderBytes)
	if err != nil {
		return h, fmt.Errorf("read mysqld's answer: %w", err)
	}
	h.n = payloadBytes(b)
	if b, err = r.q.in.Peek(packetHeaderBytes + min(h.n, len(h.first))); err != nil {
		return h, fmt.Errorf("read mysqld's answer: %w", err)
	}
	copy(h.first[:], b[packetHeaderBytes:])
	return h, nil
}

// pass passes on the packet of which h is the beginning, and the packets that continue it.
func (r *relay) pass(h head, edit func([]byte) []byte) error {
	if edit != nil && packetHeaderBytes+h.n <= r.q.in.Size() {
		b, err := r.q.in.Peek(packetHeaderBytes + h.n)
		if err != nil {
			return fmt.Errorf("read mysqld's answer: %w", err)
		}
		if err := r.write(edit(b[packetHeaderBytes:])); err != nil {
			return err
		}
		_, _ = r.q.in.Discard(packetHeaderBytes + h.n) // cannot fail: these bytes were peeked
		return nil
	}
	for n := h.n; ; {
		_, _ = r.q.in.Discard(packetHeaderBytes)
		if err := r.header(n); err != nil {
			return err
		}
		if _, err := io.CopyN(r.out, r.q.in, int64(n)); err != nil {
			return fmt.Errorf("pass mysqld's answer on: %w", err)
		}
		if n < packetBytesMax {
			return nil
		}
		b, err := r.q.in.Peek(packetHeaderBytes)
		if err != nil {
			return fmt.Errorf("read mysqld's answer: %w", err)
		}
		n = payloadBytes(b)
	}
}

func (r *relay) header(n int) error {
	if _, err := r.out.Write(appendPacketHeader(nil, n, r.sequence)); err != nil {
		return fmt.Errorf("pass mysqld's answer on: %w", err)
	}
	r.sequence++
	return nil
}

// write sends a packet of our own to the reader.
func (r *relay) write(payload []byte) error {
	if err := r.header(len(payload)); err != nil {
		return err
	}
	if _, err := r.out.Write(payload); err != nil {
		return fmt.Errorf("pass mysqld's answer on: %w", err)
	}
	return nil
}

// one passes on one packet: OK, or an error.
func (r *relay) one() error {
	h, err := r.peek()
	if err == nil {
		err = r.pass(h, nil)
	}
	return errors.Join(err, r.out.Flush())
}

// result passes on a whole result, of a text or of a prepared statement. With these capabilities a statement has one
// result, and mysqld may not ask the client for a file.
func (r *relay) result() error {
	h, err := r.peek()
	if err != nil {
		return err
	}
	if h.n > 0 && h.first[0] == headerLocalFile {
		return fmt.Errorf("%w: mysqld asks for a file", ErrMalformed)
	}
	if err := r.pass(h, nil); err != nil {
		return err
	}
	if h.n == 0 || h.first[0] == headerOK || h.isError() {
		return r.out.Flush()
	}
	if err := r.until(nil, nil); err != nil { // columns
		return err
	}
	if err := r.until(r.edit, r.more); err != nil {
		return err
	}
	return r.out.Flush()
}

// until passes packets on up to and with the next EOF or error packet.
func (r *relay) until(edit func([]byte) []byte, more [][]byte) error {
	for {
		h, err := r.peek()
		if err != nil {
			return err
		}
		last := h.isEOF() || h.isError()
		if h.isEOF() {
			for _, row := range more {
				if err := r.write(row); err != nil {
					return err
				}
			}
		}
		if last {
			return r.pass(h, nil)
		}
		if err := r.pass(h, edit); err != nil {
			return err
		}
	}
}

// prepared passes on the answer to COM_STMT_PREPARE: the statement's number, how many columns and parameters it has,
// and their definitions.
func (r *relay) prepared() error {
	h, err := r.peek()
	if err != nil {
		return err
	}
	if err := r.pass(h, nil); err != nil {
		return err
	}
	if h.n < len(h.first) || h.first[0] != headerOK {
		return r.out.Flush()
	}
	columns, parameters := binary.LittleEndian.Uint16(h.first[5:]), binary.LittleEndian.Uint16(h.first[7:])
	for _, n := range []uint16{parameters, columns} {
		if n == 0 {
			continue
		}
		if err := r.until(nil, nil); err != nil {
			return err
		}
	}
	return r.out.Flush()
}

// firstString returns the length-encoded string with which b begins.
func firstString(b []byte) (text []byte, ok bool) {
	if len(b) > 0 && b[0] == 0xfb { // NULL
		return nil, true
	}
	n, rest, err := binlog.CutNetInt(b)
	if err != nil || n > uint64(len(rest)) {
		return nil, false
	}
	return rest[:n], true
}

// editVariables returns an edit for SHOW VARIABLES: it puts in the values that differ from
// mysqld's.
func editVariables(values map[string]string) func(row []byte) []byte {
	return func(row []byte) []byte {
		name, ok := firstString(row)
		value, known := values[strings.ToLower(string(name))]
		if !ok || !known {
			return row
		}
		return appendString(appendString(nil, string(name)), value)
	}
}
