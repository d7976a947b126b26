package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/quorate/quorate/internal/front/control"
)

// ControlTimeout bounds an operator's request, and so the wait of the client for its answer. It
// is longer than any request takes; a restart takes longest.
const ControlTimeout = 7 * time.Minute

// httpStatus returns the HTTP status of an answer, for callers that look only at the status.
func httpStatus(code control.Code) int {
	switch code {
	case control.CodeOK:
		return http.StatusOK
	case control.CodeInvalid:
		return http.StatusBadRequest
	case control.CodeUnknown:
		return http.StatusNotFound
	case control.CodeStale, control.CodeFailed, control.CodePurged, control.CodeBehind: // the cluster does not allow it now
		return http.StatusConflict
	case control.CodeNoLeader, control.CodeNotLeader, control.CodeBusy:
		return http.StatusServiceUnavailable
	case control.CodeUnauthorized:
		return http.StatusUnauthorized
	case control.CodeNoTokens, control.CodeReadOnlyToken, control.CodeNotFromHere, control.CodeForeignHost, control.CodeForeignOrigin:
		return http.StatusForbidden
	}
	return http.StatusInternalServerError
}

// Control sends an operator's request to the agent at socket, the path of its control socket,
// and returns its answer, which may be a refusal. For root, r.By may name the account that
// became root by sudo; the agent finds out everything else.
func Control(ctx context.Context, socket string, r control.Request) (control.Answer, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return control.Answer{}, fmt.Errorf("encode request: %w", err)
	}
	resp, err := request(ctx, socket, http.MethodPost, "/control/"+r.Name, "", body)
	if err != nil {
		return control.Answer{}, fmt.Errorf("ask agent at %s: %w", socket, err)
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "application/json" {
		return control.Answer{}, fmt.Errorf("ask agent at %s: %w", socket, refusal(resp))
	}
	var answer control.Answer
	if err := json.NewDecoder(io.LimitReader(resp.Body, control.AnswerBytesMax)).Decode(&answer); err != nil {
		return control.Answer{}, fmt.Errorf("ask agent at %s: decode answer: %w: %w", socket, ErrNoAnswer, err)
	}
	return answer, nil
}
