package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/quorate/quorate/internal/cluster/status"
)

const (
	// answerBytesMax bounds an answer. The status of seven nodes with GTID sets of thousands of
	// intervals is below 1 MiB.
	answerBytesMax = 8 << 20
	// refusalBytesMax is how many bytes of a refusal are shown.
	refusalBytesMax = 4 << 10
)

// ErrNoAnswer: the request was sent, or may have been sent, so nobody knows whether it was
// carried out.
var ErrNoAnswer = errors.New("no answer came")

// ErrToken: the agent wants a token, or a valid one.
var ErrToken = errors.New("it wants a token")

// IsSocket tells whether an agent's address is the path of its control socket, not
// a host:port.
func IsSocket(addr string) bool { return strings.ContainsRune(addr, '/') }

// FetchStatus asks the agent at addr (host:port, or the path of its control socket) for the
// cluster as it sees it. token is for an agent that wants one; "" = no token. ctx bounds the
// whole request. No proxy is used.
func FetchStatus(ctx context.Context, addr, token string) (st status.Cluster, err error) {
	resp, err := request(ctx, addr, http.MethodGet, "/status", token, nil)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusUnauthorized {
			err = ErrToken
		} else if resp.StatusCode != http.StatusOK {
			err = refusal(resp)
		} else if err = json.NewDecoder(io.LimitReader(resp.Body, answerBytesMax)).Decode(&st); err != nil {
			err = fmt.Errorf("decode answer: %w", err)
		}
	}
	if err != nil {
		return status.Cluster{}, fmt.Errorf("ask agent at %s: %w", addr, err)
	}
	return st, nil
}

// request sends one request; the caller closes the answer's body.
func request(ctx context.Context, addr, method, path, token string, body []byte) (*http.Response, error) {
	transport, host := &http.Transport{DisableKeepAlives: true}, addr
	if IsSocket(addr) {
		host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", addr)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // drop the URL, which says nothing new
		}
		sent := true
		if e, ok := errors.AsType[*net.OpError](err); ok {
			err, sent = e.Err, e.Op != "dial" // drop the address, too
		}
		if sent {
			err = fmt.Errorf("%w: %w", ErrNoAnswer, err)
		}
		return nil, err
	}
	return resp, nil
}

// refusal returns the text of an unexpected answer as an error.
func refusal(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, refusalBytesMax))
	return errors.New(strings.TrimSuffix("it answered "+resp.Status+": "+strings.TrimSpace(string(text)), ": "))
}
