package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/quorate/quorate/internal/cluster"
)

// statusBytesMax bounds a status answer: seven nodes whose GTID sets have
// thousands of intervals stay below 1 MiB.
const statusBytesMax = 8 << 20

// FetchStatus asks the agent at addr (host:port) for the cluster as it sees it.
// ctx bounds the whole request. No proxy is used.
func FetchStatus(ctx context.Context, addr string) (cluster.Status, error) {
	var st cluster.Status
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/status", nil)
	if err != nil {
		return st, fmt.Errorf("ask agent at %s: %w", addr, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, which says nothing new
		}
		return st, fmt.Errorf("ask agent at %s: %w", addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return st, fmt.Errorf("ask agent at %s: it answered %s", addr, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, statusBytesMax)).Decode(&st); err != nil {
		return st, fmt.Errorf("ask agent at %s: decode status: %w", addr, err)
	}
	return st, nil
}
