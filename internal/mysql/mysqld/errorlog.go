package mysqld

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// tailLines is how many last lines of the error log an error has.
	tailLines = 20
	// lineBytesMax bounds one line of the error log; a longer line is cut into several.
	lineBytesMax = 8 << 10
	// sameEvery is how often lines that are equal but for their times are forwarded. A mysqld without space was seen to
	// repeat a line 10 000 times a second.
	sameEvery = time.Second
	// sameMax is how many different lines are known at once, of lineBytesMax each. What is beyond is forwarded.
	sameMax = 64
)

// logLine is one line of mysqld's error log:
//
//	2026-11-21T03:21:22.516144Z 0 [System] [MY-013172] [Server] Received SHUTDOWN …
//
// Lines in another form (a crash's stack trace) have only text.
type logLine struct {
	priority, code, text string
}

func parseLogLine(line string) logLine {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) < 6 || !bracketed(fields[2]) || !bracketed(fields[3]) || !bracketed(fields[4]) {
		return logLine{text: line}
	}
	return logLine{
		priority: strings.Trim(fields[2], "[]"),
		code:     strings.Trim(fields[3], "[]"),
		text:     fields[5],
	}
}

func bracketed(s string) bool { return strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") }

// shutdown reports whether the line says that the server begins to shut down:
// ER_SERVER_SHUTDOWN_INFO (a signal or SHUTDOWN) and ER_RESTART_RECEIVED_INFO in
// share/messages_to_error_log.txt. It also looks at the text, as a second way: a wrong yes only
// costs a restart.
func (l logLine) shutdown() bool {
	return l.code == "MY-013172" || l.priority == "System" &&
		(strings.HasPrefix(l.text, "Received SHUTDOWN") || strings.HasPrefix(l.text, "Received RESTART"))
}

// diskFull reports whether the line says that the server waits for space, to write its binlog,
// a relay log or a temporary file: EE_DISK_FULL_WITH_RETRY_MSG, which the server prints at its
// first try; tries are a minute apart (wait_for_free_space in mysys/errors.cc).
func (l logLine) diskFull() bool { return l.code == "MY-000035" }

// ready reports whether the line says that the server takes connections: ER_SERVER_STARTUP_MSG. The init file has run by then.
func (l logLine) ready() bool { return l.code == "MY-010931" }

func (l logLine) level() slog.Level {
	switch l.priority {
	case "ERROR":
		return slog.LevelError
	case "Note":
		return slog.LevelDebug
	case "System":
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// errorLog reads mysqld's error log. For a line that says that the server shuts down it calls
// shutdown, before anything else; for a line that says that the server waits for disk space it
// calls diskFull; for a line that says that the server takes connections it calls ready. It keeps the last lines and the first error, and forwards each line to the logger, but equal
// lines only once in sameEvery, with how many were left out. One goroutine calls run.
type errorLog struct {
	logger   *slog.Logger
	shutdown func(line string)
	diskFull func(text string)
	ready    func()

	mu         sync.Mutex
	tail       []string
	firstError string

	// same has the lines that were forwarded since sameSince, and how many more of each there were.
	same      map[logLine]int
	sameSince time.Time
}

// run reads r to its end. The last line may lack a line break.
func (e *errorLog) run(r io.Reader) {
	br := bufio.NewReaderSize(r, lineBytesMax)
	for {
		raw, err := br.ReadSlice('\n')
		if line := strings.TrimRight(string(raw), "\r\n"); line != "" {
			e.line(line)
		}
		// ErrBufferFull only says that the line goes on.
		if err != nil && err != bufio.ErrBufferFull {
			e.tellLeftOut()
			return
		}
	}
}

func (e *errorLog) line(line string) {
	l := parseLogLine(line)
	if l.shutdown() {
		e.shutdown(line)
	}
	if l.diskFull() && e.diskFull != nil {
		e.diskFull(l.text)
	}
	if l.ready() && e.ready != nil {
		e.ready()
	}
	e.mu.Lock()
	e.tail = append(e.tail, line)
	if len(e.tail) > tailLines {
		e.tail = e.tail[1:]
	}
	if l.priority == "ERROR" && e.firstError == "" {
		e.firstError = l.text
	}
	e.mu.Unlock()
	if time.Since(e.sameSince) >= sameEvery {
		e.tellLeftOut()
	}
	if _, known := e.same[l]; known {
		e.same[l]++
		return
	}
	if len(e.same) < sameMax {
		e.same[l] = 0
	}
	e.logger.Log(context.Background(), l.level(), l.text, "code", l.code)
}

// tellLeftOut tells how many equal lines were left out since sameSince, and forgets them.
func (e *errorLog) tellLeftOut() {
	for l, n := range e.same {
		if n > 0 {
			e.logger.Log(context.Background(), l.level(), l.text, "code", l.code, "left_out", n)
		}
	}
	e.same, e.sameSince = map[logLine]int{}, time.Now()
}

// last returns the last lines.
func (e *errorLog) last() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.tail, "\n")
}

// complaint is why mysqld does not start, in its own words: the first error, which is mostly the cause of those that
// follow, else the last line. It has no time, so the same complaint has the same words.
func (e *errorLog) complaint() string {
	last := e.last()
	e.mu.Lock()
	defer e.mu.Unlock()
	return cmp.Or(e.firstError, parseLogLine(lastLine(last)).text, "it wrote nothing")
}

// complaintOf is the complaint of a mysqld that wrote text and has ended. The text goes to the logger.
func complaintOf(text []byte, logger *slog.Logger) string {
	e := errorLog{logger: logger, shutdown: func(string) {}}
	e.run(bytes.NewReader(text))
	return e.complaint()
}

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }

// LastWords returns the last line of mysqld's error log.
func (p *Process) LastWords() string { return lastLine(p.log.last()) }

// tailOf returns the last lines of s.
func tailOf(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
