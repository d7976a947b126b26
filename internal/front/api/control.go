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

// ControlTimeout bounds an operator's request, and so how long whoever sent it
// waits for the answer. It is more than any request's own time, which a restart has most of.
const ControlTimeout = 7 * time.Minute

// httpStatus is the HTTP status of an answer, for callers that look no further.
func httpStatus(code control.Code) int {
	switch code {
	case control.CodeOK:
		return http.StatusOK
	case control.CodeInvalid:
		return http.StatusBadRequest
	case control.CodeUnknown:
		return http.StatusNotFound
	case control.CodeStale, control.CodeFailed, control.CodePurged, control.CodeBehind: // the cluster is not such that it could be done; no mistake of the server's
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

// Control sends an operator's request to the agent at socket, the path of its
// control socket, and returns its answer, which may be a refusal. By is, for root,
// who became it by sudo; the agent knows all else.
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
