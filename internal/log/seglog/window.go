package seglog

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/quorate/quorate/internal/log/vfs"
)

// windowBytes is how much a window reads at once: enough for a sequential scan at the disk's speed.
const windowBytes = 1 << 20

// errDamage marks bytes that a scan found wrong, as opposed to an error of reading them. It does not leave the
// package.
var errDamage = errors.New("damaged")

func damaged(what string, err error) error { return fmt.Errorf("read %s: %w", what, err) }

// window gives access to a file's bytes by offset, and reads ahead.
type window struct {
	file vfs.File
	// size is the end of the file, or of the part of it that is to be read.
	size int64
	// ahead is how much is read at once.
	ahead int64
	// lasting makes each read use new memory: then bytes that were returned stay valid.
	lasting bool

	at  int64
	buf []byte
}

func newWindow(f vfs.File) (*window, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return &window{file: f, size: size, ahead: windowBytes}, nil
}

// bytes returns n bytes from offset, valid until the next call. It returns errDamage if the file ends before,
// or if the disk cannot read all of them.
func (w *window) bytes(offset, n int64) ([]byte, error) {
	if offset+n > w.size {
		return nil, fmt.Errorf("%w: the file ends at %d, inside of %d bytes at %d", errDamage, w.size, n, offset)
	}
	if offset < w.at || offset+n > w.at+int64(len(w.buf)) {
		length := min(max(n, w.ahead), w.size-offset)
		if w.lasting || int64(cap(w.buf)) < length {
			w.buf = make([]byte, length)
		}
		w.buf, w.at = w.buf[:length], offset
		got, err := w.file.ReadAt(w.buf, offset)
		bad := errors.Is(err, syscall.EIO) // a sector that the disk cannot read
		shorter := errors.Is(err, io.EOF)  // the file was cut meanwhile
		if (bad || shorter) && int64(got) >= n {
			length = int64(got) // the missing part was only read ahead
		}
		w.buf = w.buf[:min(int64(got), length)]
		switch {
		case int64(got) >= length:
		case shorter:
			return nil, fmt.Errorf("%w: the file became shorter than %d", errDamage, w.size)
		case bad:
			return nil, fmt.Errorf("%w: %w", errDamage, err)
		default:
			return nil, err
		}
	}
	return w.buf[offset-w.at:][:n], nil
}
