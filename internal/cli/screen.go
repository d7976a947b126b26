package cli

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ctrlC is the byte that a terminal sends for Ctrl-C when it does not turn it into a signal.
const ctrlC = 3

// screen is a terminal's second screen. Every key is read at once. When it is closed, the terminal shows its
// former content again.
type screen struct {
	out  io.Writer
	fd   int
	was  unix.Termios
	keys chan byte
}

// openScreen opens a screen on the terminal of in and out; nil = they are no terminal.
func openScreen(in io.Reader, out io.Writer) *screen {
	f, ok := in.(*os.File)
	if !ok || !isTerminal(in) || !isTerminal(out) {
		return nil
	}
	s := &screen{out: out, fd: int(f.Fd()), keys: make(chan byte)}
	mode, err := unix.IoctlGetTermios(s.fd, unix.TCGETS)
	if err != nil {
		return nil
	}
	s.was = *mode
	// No signals: Ctrl-Z would leave the terminal as it is now.
	mode.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG
	if unix.IoctlSetTermios(s.fd, unix.TCSETS, mode) != nil {
		return nil
	}
	// The second screen, without a cursor.
	_, _ = io.WriteString(out, "\x1b[?1049h\x1b[?25l")
	go func() { // it ends with the process: a read of a terminal cannot be cancelled
		buffer := make([]byte, 1)
		for {
			if n, err := f.Read(buffer); n == 0 || err != nil {
				return
			}
			s.keys <- buffer[0]
		}
	}()
	return s
}

// frame shows a text from the upper left corner on. Each line clears the rest of its row, and the end of the text
// clears the rows below. So the screen is never empty in between.
func (s *screen) frame(text string) error {
	lines := strings.TrimSuffix(text, "\n")
	return printText(s.out, "\x1b[H"+strings.ReplaceAll(lines, "\n", "\x1b[K\n")+"\x1b[K\x1b[J")
}

// size is the present size of the terminal; 0 = not known.
func (s *screen) size() (columns, rows int) {
	size, err := unix.IoctlGetWinsize(s.fd, unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// close gives the terminal back.
func (s *screen) close() {
	_, _ = io.WriteString(s.out, "\x1b[?25h\x1b[?1049l")
	_ = unix.IoctlSetTermios(s.fd, unix.TCSETS, &s.was)
}
