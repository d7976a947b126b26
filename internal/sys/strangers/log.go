package strangers

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// linesMax is how many lines may be about one source in each period: enough for the different lines
	// about a node or a client with a wrong configuration.
	linesMax = 4
	period   = time.Minute
	// sourcesMax bounds how many sources are remembered: about further ones in one period nothing is logged.
	sourcesMax = 256
)

// Log logs what strangers do, at most a few lines a minute about each source.
type Log struct {
	logger *slog.Logger

	mu    sync.Mutex
	about map[netip.Addr]*lines
	// left is how many lines were left out since the last line.
	left int
}

// lines counts the lines about one source since a time.
type lines struct {
	since time.Time
	n     int
}

// NewLog returns a Log that writes warnings to a logger.
func NewLog(logger *slog.Logger) *Log {
	return &Log{logger: logger, about: make(map[netip.Addr]*lines)}
}

// Warn logs a line about a connection from an address. It returns false if it leaves the line out.
func (l *Log) Warn(from net.Addr, text string, args ...any) bool {
	ok, left := l.may(Source(from), time.Now())
	if !ok {
		return false
	}
	args = append([]any{"remote", from.String()}, args...)
	if left > 0 {
		args = append(args, "lines_left_out", left)
	}
	l.logger.Warn(text, args...)
	return true
}

// may tells whether a line about a source may be logged, and how many lines were left out before it.
func (l *Log) may(source netip.Addr, now time.Time) (ok bool, left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.about[source]
	if a == nil && len(l.about) >= sourcesMax {
		l.forget(now)
	}
	switch {
	case a == nil && len(l.about) < sourcesMax:
		a = &lines{since: now}
		l.about[source] = a
	case a != nil && now.Sub(a.since) >= period:
		*a = lines{since: now}
	}
	if a == nil || a.n >= linesMax {
		l.left++
		return false, 0
	}
	a.n++
	left, l.left = l.left, 0
	return true, left
}

// forget drops the sources whose period is over.
func (l *Log) forget(now time.Time) {
	for source, a := range l.about {
		if now.Sub(a.since) >= period {
			delete(l.about, source)
		}
	}
}
