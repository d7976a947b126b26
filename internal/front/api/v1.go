package api

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
)

const (
	// historyDefault is how many rows /v1/history returns by default, historyMax how many at
	// most: 1000 rows have some 300 KiB.
	historyDefault = 50
	historyMax     = 1000
	// operateBytesMax bounds the body of a request, which has only a few fields.
	operateBytesMax = 4 << 10
)

// openAPI is made by TestOpenAPI from the routes and the types.
//
//go:embed openapi.json
var openAPI []byte

// NodesAnswer is the answer to GET /v1/nodes.
type NodesAnswer struct {
	// StateVersion is the version of the cluster state on the node that was asked.
	StateVersion uint64        `json:"state_version"`
	Nodes        []status.Node `json:"nodes"`
}

// HistoryAnswer is the answer to GET /v1/history, oldest row first.
type HistoryAnswer struct {
	History []cluster.HistoryRow `json:"history"`
}

// MaintenanceBody is the body of POST /v1/maintenance. A change that stops writes cannot be forced
// here.
type MaintenanceBody struct {
	cluster.MaintenanceChange
	// DryRun says to change nothing: the answer is what the request would do.
	DryRun bool `json:"dry_run,omitempty"`
}

// route is one path of the versioned API.
type route struct {
	method, path string
	answer       http.HandlerFunc
}

// v1 returns the routes of the versioned API. openapi.json has each route with its answers.
func (s *Server) v1() []route {
	return []route{
		{http.MethodGet, "/v1/status", s.reading(func(w http.ResponseWriter, _ *http.Request) {
			s.reply(w, http.StatusOK, s.provider.Status().InWords())
		})},
		{http.MethodGet, "/v1/nodes", s.reading(func(w http.ResponseWriter, _ *http.Request) {
			st := s.provider.Status().InWords()
			s.reply(w, http.StatusOK, NodesAnswer{st.StateVersion, st.Nodes})
		})},
		{http.MethodGet, "/v1/history", s.reading(s.answerHistory)},
		{http.MethodGet, "/v1/events", s.reading(s.answerEvents)},
		{http.MethodGet, "/v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(openAPI) // an error means that the client has left
		}},
		{http.MethodPost, "/v1/switchover", s.operating(func(w http.ResponseWriter, r *http.Request, by string) {
			args := cluster.SwitchoverRequest{MaxPause: cluster.MaxPauseDefault, Wait: cluster.WaitDefault}
			operated(s, w, r, by, "switchover", &args, new(cluster.Switchover))
		})},
		{http.MethodPost, "/v1/maintenance", s.operating(func(w http.ResponseWriter, r *http.Request, by string) {
			operated(s, w, r, by, "maintenance", new(MaintenanceBody), new(cluster.ChangeResult), "on")
		})},
	}
}

// handleV1 adds the versioned API. Unknown paths and methods below /v1/ are answered in JSON,
// too.
func (s *Server) handleV1(mux *http.ServeMux) {
	for _, r := range s.v1() {
		mux.HandleFunc(r.method+" "+r.path, r.answer)
		allowed := r.method
		if allowed == http.MethodGet {
			allowed = "GET, HEAD"
		}
		mux.HandleFunc(r.path, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Allow", allowed)
			s.refuse(w, http.StatusMethodNotAllowed, control.CodeUnknown, r.path+" takes "+allowed)
		})
	}
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, _ *http.Request) {
		s.refuse(w, http.StatusNotFound, control.CodeUnknown, "there is no such path: GET /v1/openapi.json has all")
	})
}

// refuse answers with an error, in the form that all errors of the API have.
func (s *Server) refuse(w http.ResponseWriter, status int, code control.Code, text string) {
	s.reply(w, status, control.Failure{Error: text, Code: code})
}

// history asks for the newest rows.
func (s *Server) history(ctx context.Context, last int) (rows []cluster.HistoryRow, _ error) {
	args, err := json.Marshal(cluster.LastRequest{Last: last})
	if err != nil {
		return nil, fmt.Errorf("encode arguments: %w", err)
	}
	answer := s.provider.Control(ctx, control.Request{Name: "history", By: "api", Args: args})
	if err := answer.Err(); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(answer.Result, &rows); err != nil {
		return nil, fmt.Errorf("decode the history: %w", err)
	}
	if rows == nil {
		rows = []cluster.HistoryRow{}
	}
	return rows, nil
}

func (s *Server) answerHistory(w http.ResponseWriter, r *http.Request) {
	last := historyDefault
	if text, given := r.URL.Query()["last"]; given {
		n, err := strconv.Atoi(text[0])
		if err != nil || n < 1 || n > historyMax || len(text) > 1 {
			s.refuse(w, http.StatusBadRequest, control.CodeInvalid, fmt.Sprintf("last must be 1 to %d", historyMax))
			return
		}
		last = n
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	rows, err := s.history(ctx, last)
	if err != nil {
		s.refuse(w, http.StatusServiceUnavailable, control.CodeFailed, err.Error())
		return
	}
	s.reply(w, http.StatusOK, HistoryAnswer{rows})
}

// operated carries out an operator's request as the control socket does. It decodes the body into
// args, which has the defaults, and the answer's result into result. The fields in required have
// no default: the body must have them.
func operated[A, R any](s *Server, w http.ResponseWriter, r *http.Request, by, name string, args *A, result *R, required ...string) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		s.refuse(w, http.StatusUnsupportedMediaType, control.CodeInvalid, "the body must be of the type application/json")
		return
	}
	if err := decodeOne(http.MaxBytesReader(w, r.Body, operateBytesMax), args, required...); err != nil {
		code := http.StatusBadRequest
		if long, ok := errors.AsType[*http.MaxBytesError](err); ok {
			code, err = http.StatusRequestEntityTooLarge, fmt.Errorf("it has more than %d bytes", long.Limit)
		}
		s.refuse(w, code, control.CodeInvalid, "read the request: "+err.Error())
		return
	}
	raw, err := json.Marshal(args)
	if err != nil {
		s.refuse(w, http.StatusInternalServerError, control.CodeFailed, "encode the request: "+err.Error())
		return
	}
	answer, err := s.carriedOut(w, r, control.Request{Name: name, By: by, Args: raw})
	if err == nil {
		if err = answer.Err(); err != nil {
			s.reply(w, httpStatus(answer.Code), control.Failure{Error: answer.Error, Code: answer.Code})
			return
		}
		err = json.Unmarshal(answer.Result, result)
	}
	if err != nil {
		s.refuse(w, http.StatusInternalServerError, control.CodeUncertain, "answer the request: "+err.Error())
		return
	}
	s.reply(w, http.StatusOK, result)
}

// decodeOne reads one JSON object. It must have the required fields and no unknown field, and
// nothing may follow it.
func decodeOne(from io.Reader, to any, required ...string) error {
	raw, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		text := "it is not one JSON object"
		if at, ok := errors.AsType[*json.SyntaxError](err); ok {
			text += fmt.Sprintf(", from byte %d on: %v", at.Offset, at)
		}
		return errors.New(text)
	}
	for name, value := range fields {
		if string(value) == "null" { // null would leave the default in place
			return fmt.Errorf("%q is null: leave it out", printable(name))
		}
	}
	for _, name := range required {
		if fields[name] == nil {
			return fmt.Errorf("%q is missing", name)
		}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err = d.Decode(to)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		name := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
		return fmt.Errorf("%q must not be a JSON %s", printable(name), wrong.Value)
	}
	return err
}

// carriedOut carries out a request, and extends the deadlines of the connection for it.
func (s *Server) carriedOut(w http.ResponseWriter, r *http.Request, request control.Request) (control.Answer, error) {
	if c, ok := r.Context().Value(callerKey{}).(caller); ok && c.gone() { // this process stood still, and the request was given up meanwhile
		s.config.Logger.Warn("a request was not carried out: its caller has gone", "name", request.Name, "by", request.By)
		return control.Answer{}, errors.New("the caller has gone")
	}
	ctx, cancel := context.WithTimeout(r.Context(), ControlTimeout)
	defer cancel()
	deadline := time.Now().Add(ControlTimeout + requestTimeout)
	writer := http.NewResponseController(w)
	if err := errors.Join(writer.SetReadDeadline(deadline), writer.SetWriteDeadline(deadline)); err != nil {
		return control.Answer{}, fmt.Errorf("give the request time: %w", err)
	}
	return s.provider.Control(ctx, request), nil
}
