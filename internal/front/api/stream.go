package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/front/control"
)

const (
	// copiesMax bounds how many copies of this node's data and log are made at the same time. An archive reads at most 2,
	// a full backup 3: there is room for another one that is told that a backup runs, and for readers of the log.
	copiesMax = 8
	// copyStallMax is how long a copy may stand still because the client does not read, if the client does not say it
	// (stallQuery): its disk or network may be slow.
	copyStallMax = 10 * time.Minute
	// reasonTime is how long the client has to take the reason why a copy ended.
	reasonTime = 5 * time.Second
	// stallQuery is the query's name for it. Part of the interface.
	stallQuery = "stall"
	// The trailers of a copy: it is whole, or the error. Part of the interface.
	trailerEnd   = "Quorate-End"
	trailerError = "Quorate-Error"
)

// answerStream answers POST /stream/NAME on the control socket with a copy of the node's data or
// log. These are all data of the cluster, so only root and the agent's own account may have
// them, whatever control.group is.
func (s *Server) answerStream(w http.ResponseWriter, r *http.Request) {
	peer, _ := r.Context().Value(peerKey{}).(*peer)
	if peer == nil || peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		s.config.Logger.Warn("a copy of the data was refused: neither root nor the agent's account asked", "name", r.PathValue("name"))
		http.Error(w, "copies of the data are for root and the account of the agent only", http.StatusForbidden)
		return
	}
	var request control.Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, control.RequestBytesMax)).Decode(&request); err != nil {
		http.Error(w, fmt.Sprintf("decode request: %v", err), http.StatusBadRequest)
		return
	}
	request.Name, request.By = r.PathValue("name"), whoAsked(peer, request.By)
	select {
	case s.copies <- struct{}{}:
		defer func() { <-s.copies }()
	default:
		s.refuseCopy(w, control.Errorf(control.CodeBusy, "%d copies are being made, which is all that there may be", copiesMax))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		defer cancel()
		select {
		case <-s.ended:
		case <-ctx.Done():
		}
	})
	stall, err := time.ParseDuration(r.URL.Query().Get(stallQuery))
	if err != nil {
		stall = copyStallMax
	}
	out := &copyWriter{w: w, stall: stall, controller: http.NewResponseController(w)}
	w.Header().Set("Trailer", trailerEnd+", "+trailerError)
	err = s.config.Stream(ctx, request, out)
	_ = out.controller.SetWriteDeadline(time.Now().Add(reasonTime)) // the last write's time may be over by now
	switch {
	case err != nil && ctx.Err() != nil && r.Context().Err() == nil:
		w.Header().Set(trailerError, errCutOff.Error())
	case err == nil:
		w.Header().Set(trailerEnd, "ok")
	case !out.begun:
		w.Header().Del("Trailer")
		s.refuseCopy(w, err)
	default:
		w.Header().Set(trailerError, units.Line(err.Error()))
	}
}

// refuseCopy says why a copy does not begin.
func (s *Server) refuseCopy(w http.ResponseWriter, err error) {
	answer := control.Answer{Code: control.CodeFailed, Error: err.Error()}
	if e, ok := errors.AsType[*control.Error](err); ok {
		answer.Code = e.Code
	}
	s.reply(w, httpStatus(answer.Code), answer)
}

// copyWriter sends each write at once, with a deadline of its own.
type copyWriter struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	stall      time.Duration
	begun      bool
	// mu: no Write gives itself time again behind EndIn.
	mu   sync.Mutex
	ends bool
}

// EndIn lets all writes fail after d, also one that waits for its reader. Any goroutine may call it.
func (c *copyWriter) EndIn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = true
	_ = c.controller.SetWriteDeadline(time.Now().Add(d)) // Write has done so, or says that it fails
}

// giveTime gives a write time.
func (c *copyWriter) giveTime() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ends {
		return nil
	}
	if err := errors.Join(c.controller.SetReadDeadline(time.Time{}), c.controller.SetWriteDeadline(time.Now().Add(c.stall))); err != nil {
		return fmt.Errorf("give a copy time: %w", err)
	}
	return nil
}

// Write implements io.Writer.
func (c *copyWriter) Write(p []byte) (int, error) {
	if !c.begun {
		c.w.Header().Set("Content-Type", "application/octet-stream")
		c.begun = true
	}
	if err := c.giveTime(); err != nil {
		return 0, err
	}
	n, err := c.w.Write(p)
	if err == nil {
		err = c.controller.Flush()
	}
	return n, err
}

// Stream asks the agent at socket for a copy, which the caller reads to its end and closes. A read
// returns the agent's error, if there is one. It returns io.EOF only if the copy is whole. stall is how long the caller may
// read nothing; 0 = 10 min.
func Stream(ctx context.Context, socket string, r control.Request, stall time.Duration) (io.ReadCloser, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	path := "/stream/" + r.Name
	if stall > 0 {
		path += "?" + stallQuery + "=" + stall.String()
	}
	resp, err := request(ctx, socket, http.MethodPost, path, "", body)
	if err != nil {
		return nil, fmt.Errorf("ask agent at %s: %w", socket, err)
	}
	if resp.StatusCode == http.StatusOK {
		return &copyReader{resp}, nil
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "application/json" {
		return nil, fmt.Errorf("ask agent at %s: %w", socket, refusal(resp))
	}
	var answer control.Answer
	if err := json.NewDecoder(io.LimitReader(resp.Body, control.AnswerBytesMax)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("ask agent at %s: decode answer: %w", socket, err)
	}
	return nil, answer.Err()
}

// errCutOff is not io.ErrUnexpectedEOF: readers of backups take that for damage of what they read.
var errCutOff = errors.New("the agent's answer was cut off: the agent has ended, or was stopped (systemctl status quorate); or this command has read nothing of it for too long, because its store stood still. The agent's log says why (journalctl -u quorate)")

type copyReader struct{ resp *http.Response }

// Read implements io.Reader.
func (c *copyReader) Read(p []byte) (int, error) {
	n, err := c.resp.Body.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return n, errCutOff
	}
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if text := c.resp.Trailer.Get(trailerError); text != "" {
		return n, errors.New(text)
	}
	if c.resp.Trailer.Get(trailerEnd) == "" {
		return n, errCutOff
	}
	return n, io.EOF
}

// Close implements io.Closer.
func (c *copyReader) Close() error { return c.resp.Body.Close() }
