package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/sys/strangers"
)

const (
	// streamsMax bounds the streams of events: open pages in browsers. Each costs a status of some
	// 10 KiB every streamEvery.
	streamsMax = 16
	// streamsPerSource leaves places for others if one host has left pages open, or means harm. All clients that
	// come through one proxy, or by ssh, are one source.
	streamsPerSource = streamsMax / 2
	// streamEvery is how often a stream sends the status, which also shows that the stream
	// lives.
	streamEvery = 500 * time.Millisecond
	// streamTime is how long a stream lives. A client that still reads connects again.
	streamTime = 10 * time.Minute
	// streamHistory is how many rows of the history a stream sends.
	streamHistory = 50
)

// The events of a stream.
const (
	eventStatus  = "status"
	eventHistory = "history"
)

// streams counts the open streams of events.
type streams struct {
	mu   sync.Mutex
	open map[netip.Addr]int // by source
	all  int
	// refused counts the requests that found no place.
	refused uint64
}

// enter takes a place; if there is none, it says why.
func (s *streams) enter(source netip.Addr) (full string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all >= streamsMax:
		full = fmt.Sprintf("%d streams are open, which is all that there may be", streamsMax)
	case s.open[source] >= streamsPerSource:
		full = fmt.Sprintf("%d streams are open from this address, which is all that it may have", streamsPerSource)
	default:
		s.all++
		s.open[source]++
		return ""
	}
	s.refused++
	return full
}

// leave gives a place back.
func (s *streams) leave(source netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.open[source]--; s.open[source] == 0 {
		delete(s.open, source)
	}
}

// counts returns how many streams are open, and how many were refused.
func (s *streams) counts() (open int, refused uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all, s.refused
}

// sourceOf returns the source for which a request counts. All requests on the control socket
// have one source.
func sourceOf(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return strangers.Source(net.TCPAddrFromAddrPort(from))
}

// answerEvents sends the present state as server-sent events: the status every streamEvery, and
// the history at the beginning and when it has grown.
func (s *Server) answerEvents(w http.ResponseWriter, r *http.Request) {
	source := sourceOf(r)
	if full := s.streams.enter(source); full != "" {
		w.Header().Set("Retry-After", "5")
		s.refuse(w, http.StatusServiceUnavailable, control.CodeBusy, full)
		return
	}
	defer s.streams.leave(source)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return
	}
	writer := http.NewResponseController(w)
	over := time.NewTimer(streamTime)
	defer over.Stop()
	ticker := time.NewTicker(streamEvery)
	defer ticker.Stop()
	if err := writer.SetReadDeadline(time.Now().Add(streamTime + requestTimeout)); err != nil {
		s.config.Logger.Debug("cannot give a stream time", "err", err)
		return
	}
	told := uint64(0)
	for {
		st := s.provider.Status().InWords()
		err := writer.SetWriteDeadline(time.Now().Add(requestTimeout))
		if err == nil {
			err = event(w, eventStatus, st)
		}
		if seq := historySeq(st); err == nil && seq != told {
			if rows, failed := s.history(r.Context(), streamHistory); failed == nil { // else the next round tries again
				told, err = seq, event(w, eventHistory, HistoryAnswer{rows})
			}
		}
		if err = errors.Join(err, writer.Flush()); err != nil {
			s.config.Logger.Debug("a stream of events ends", "err", err)
			return
		}
		select {
		case <-ticker.C:
		case <-over.C:
			return
		case <-s.ended:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// historySeq changes with each line of any node's history; it is never 0.
func historySeq(st status.Cluster) uint64 {
	sum := uint64(1)
	for _, n := range st.Nodes {
		sum += n.HistorySeq
	}
	if st.LastChange != nil {
		sum += uint64(st.LastChange.At.UnixNano())
	}
	return sum
}

func event(w http.ResponseWriter, name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data)
	return err
}
