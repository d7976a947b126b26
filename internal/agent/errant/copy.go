package errant

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// copying is a save under way.
type copying struct {
	fs     vfs.FS
	dir    string
	errant *gtid.Set
	saved  *gtid.Set
	files  []string
	// room is how many bytes are left. full is the message when these are too few.
	room int64
	full error
}

// file copies the wanted transactions of one binlog file. It passes over an incomplete transaction
// at the end, which a killed mysqld may leave.
func (c *copying) file(ctx context.Context, path string) error {
	f, err := mysqld.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := &input{r: bufio.NewReaderSize(f, 1<<20)}
	out := &output{fs: c.fs, path: filepath.Join(c.dir, filepath.Base(path))}
	magic := make([]byte, len(binlog.Magic))
	if err = in.read(magic); err == nil && string(magic) != binlog.Magic {
		err = fmt.Errorf("%w: it begins with %x", binlog.ErrMalformed, magic)
	}
	for err == nil {
		if err = ctx.Err(); err == nil {
			err = c.next(in, out)
		}
	}
	if out.f != nil {
		if err := out.finish(); err != nil {
			return err
		}
	}
	if out.transactions > 0 {
		c.files = append(c.files, filepath.Base(path))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// next reads a transaction, or an event outside of a transaction.
func (c *copying) next(in *input, out *output) error {
	head := make(binlog.Event, binlog.HeaderBytes)
	if err := in.read(head); err != nil {
		return err
	}
	length := int64(head.Length())
	switch head.Type() {
	case binlog.TypeGTID, binlog.TypeGTIDTagged, binlog.TypeFormatDescription:
	case binlog.TypePreviousGTIDs, binlog.TypeRotate, binlog.TypeStop:
		return in.skip(length - int64(len(head)))
	default:
		return fmt.Errorf("%w: type %d at byte %d is no transaction's beginning", binlog.ErrStream, head.Type(), in.at)
	}
	if length < int64(len(head))+binlog.ChecksumBytes || length > eventBytesMax {
		return fmt.Errorf("%w: type %d with %d bytes", binlog.ErrMalformed, head.Type(), length)
	}
	event := append(head, make([]byte, length-int64(len(head)))...)
	if err := in.read(event[binlog.HeaderBytes:]); err != nil {
		return err
	}
	if head.Type() == binlog.TypeFormatDescription {
		clean, err := binlog.CleanFormatDescription(event, false)
		out.format = clean
		return err
	}
	return c.transaction(in, out, event)
}

// transaction copies a transaction or passes over it. Since MySQL 8.0.2 the GTID event says how
// long the transaction is.
func (c *copying) transaction(in *input, out *output, event binlog.Event) error {
	info, err := binlog.ParseGTID(event)
	if err != nil {
		return err
	}
	rest := int64(info.TransactionLength) - int64(len(event))
	if rest <= 0 || event.LogPos() != uint32(in.at) {
		return fmt.Errorf("%w: transaction %v with %d bytes, at byte %d", binlog.ErrMalformed, info.GTID, info.TransactionLength, in.at)
	}
	if !c.errant.Contains(info.GTID) || c.saved.Contains(info.GTID) {
		return in.skip(rest)
	}
	if c.room -= int64(info.TransactionLength); c.room < 0 {
		return c.full
	}
	if err := out.transaction(event, in, rest); err != nil {
		return err
	}
	c.saved.Add(info.GTID)
	return nil
}

// input is a binlog file.
type input struct {
	r  *bufio.Reader
	at int64
}

func (in *input) read(b []byte) error {
	n, err := io.ReadFull(in.r, b)
	in.at += int64(n)
	return err
}

func (in *input) skip(n int64) error {
	if n < 0 {
		return fmt.Errorf("%w: an event before byte %d is too short", binlog.ErrMalformed, in.at)
	}
	done, err := io.CopyN(io.Discard, in.r, n)
	in.at += done
	return err
}

// output is the file of a save with the wanted transactions of one binlog file. It is made
// with the first transaction.
type output struct {
	fs           vfs.FS
	path         string
	format       binlog.Event
	f            vfs.File
	w            *io.OffsetWriter // of f
	transactions int              // complete ones
	size         int64            // up to the last complete one
}

// transaction writes a transaction: its GTID event, and the rest. Nothing of an incomplete
// transaction stays.
func (o *output) transaction(event binlog.Event, in *input, rest int64) error {
	if o.f == nil {
		if err := o.create(); err != nil {
			return err
		}
	}
	if _, err := o.w.Write(event); err != nil {
		return fmt.Errorf("write save: %w", err)
	}
	n, err := io.CopyN(o.w, in.r, rest)
	in.at += n
	if err == nil {
		o.transactions++
		o.size += int64(len(event)) + rest
	}
	return err
}

func (o *output) create() error {
	if o.format == nil {
		return fmt.Errorf("%w: a transaction before the FORMAT_DESCRIPTION", binlog.ErrStream)
	}
	f, err := o.fs.Create(o.path)
	if err != nil {
		return fmt.Errorf("create save: %w", err)
	}
	o.f, o.w = f, io.NewOffsetWriter(f, 0)
	head := slices.Concat([]byte(binlog.Magic), o.format)
	if _, err := o.w.Write(head); err != nil {
		return fmt.Errorf("write save: %w", err)
	}
	o.size = int64(len(head))
	return nil
}

// finish cuts an incomplete transaction and makes the file durable.
func (o *output) finish() error {
	err := errors.Join(o.f.Truncate(o.size), o.f.Sync(), o.f.Close())
	o.f = nil
	if err != nil {
		return fmt.Errorf("write save: %w", err)
	}
	return nil
}
