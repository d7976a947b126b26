package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

const (
	// answerBytesMax bounds an answer: seven nodes whose GTID sets have thousands
	// of intervals stay below 1 MiB, and so does a plan for ten thousand segments.
	answerBytesMax = 8 << 20
	// refusalBytesMax is how much of a refusal is shown.
	refusalBytesMax = 4 << 10
)

// FetchStatus asks the agent at addr (host:port) for the cluster as it sees it.
// ctx bounds the whole request. No proxy is used.
func FetchStatus(ctx context.Context, addr string) (cluster.Status, error) {
	var st cluster.Status
	err := ask(ctx, addr, http.MethodGet, "/status", nil, &st)
	return st, err
}

// FetchPurgePlan asks the agent at addr what a purge would remove.
func FetchPurgePlan(ctx context.Context, addr string, r cluster.PurgeRequest) (cluster.PurgePlan, error) {
	path := "/log/purge"
	if r.RetentionSize != nil {
		path += "?retention_size=" + strconv.FormatInt(*r.RetentionSize, 10)
	}
	var p cluster.PurgePlan
	err := ask(ctx, addr, http.MethodGet, path, nil, &p)
	return p, err
}

// Purge makes the agent at addr purge its log, and returns what it removed.
func Purge(ctx context.Context, addr string, r cluster.PurgeRequest) (cluster.PurgePlan, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return cluster.PurgePlan{}, fmt.Errorf("encode request: %w", err)
	}
	var p cluster.PurgePlan
	err = ask(ctx, addr, http.MethodPost, "/log/purge", body, &p)
	return p, err
}

// ask sends one request and decodes the answer. body is JSON, nil = none.
func ask(ctx context.Context, addr, method, path string, body []byte, answer any) error {
	if err := send(ctx, addr, method, path, body, answer); err != nil {
		return fmt.Errorf("ask agent at %s: %w", addr, err)
	}
	return nil
}

func send(ctx context.Context, addr, method, path string, body []byte, answer any) error {
	host := ""
	if method == http.MethodPost {
		host = "localhost" // as fromHere wants it
	}
	resp, err := request(ctx, addr, host, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, answerBytesMax)).Decode(answer); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

// request sends one request; the caller closes the answer's body. host is the name
// that it asks for, "" = the one in addr.
func request(ctx context.Context, addr, host, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Host = cmp.Or(host, req.Host)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, which says nothing new
		}
		return nil, err
	}
	return resp, nil
}

// refusal is what an answer says that is not the one that was asked for.
func refusal(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, refusalBytesMax))
	return errors.New(strings.TrimSuffix("it answered "+resp.Status+": "+strings.TrimSpace(string(text)), ": "))
}
