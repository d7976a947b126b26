package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

func TestPurge(t *testing.T) {
	p := &fakeProvider{}
	addr := start(t, p).Addr().String()
	size := int64(7)
	for _, c := range []struct {
		request cluster.PurgeRequest
		bytes   int64
	}{{cluster.PurgeRequest{}, -1}, {cluster.PurgeRequest{RetentionSize: &size}, 7}} {
		plan, err := FetchPurgePlan(t.Context(), addr, c.request)
		if diff := cmp.Diff(cluster.PurgePlan{Node: "a", Bytes: c.bytes}, plan); diff != "" || err != nil {
			t.Errorf("plan: %v (-want +got):\n%s", err, diff)
		}
		plan, err = Purge(t.Context(), addr, c.request)
		if diff := cmp.Diff(cluster.PurgePlan{Node: "a", Bytes: c.bytes, Done: true}, plan); diff != "" || err != nil {
			t.Errorf("purge: %v (-want +got):\n%s", err, diff)
		}
	}
	p.purgeErr = errors.New("the disk is gone")
	if _, err := Purge(t.Context(), addr, cluster.PurgeRequest{}); err == nil || !strings.Contains(err.Error(), "500 Internal Server Error: the disk is gone") {
		t.Errorf("failed purge: %v", err)
	}
}

// TestPurgeRefuses: what a page in a browser could send, and nonsense, does not
// reach the log.
func TestPurgeRefuses(t *testing.T) {
	s := start(t, &fakeProvider{purgeErr: errors.New("it reached the log")})
	for _, c := range []struct {
		kind, body string
		want       int
	}{
		{"text/plain", "{}", http.StatusUnsupportedMediaType},
		{"application/x-www-form-urlencoded", "retention_size=0", http.StatusUnsupportedMediaType},
		{"application/json", "", http.StatusBadRequest},
		{"application/json", `{"retention": 1}`, http.StatusBadRequest},
		{"application/json", `{"retention_size": -1}`, http.StatusBadRequest},
		{"application/json", `{"retention_size": ` + strings.Repeat(" ", requestBytesMax) + `1}`, http.StatusBadRequest},
		{"application/json; charset=utf-8", `{}`, http.StatusInternalServerError},
	} {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Post("http://"+s.Addr().String()+"/log/purge", c.kind, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s %.40q: %d, want %d", c.kind, c.body, resp.StatusCode, c.want)
		}
	}
	for _, path := range []string{"/log/purge", "/debug/pprof/"} {
		method := http.MethodPost
		if path != "/log/purge" {
			method = http.MethodGet
		}
		req, err := http.NewRequest(method, "http://"+s.Addr().String()+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Host = "evil.example" // a page whose name points here by now
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s for another name: %d", path, resp.StatusCode)
		}
	}
	if code, body := get(t, s, "/log/purge?retention_size=-1"); code != http.StatusBadRequest {
		t.Errorf("plan: %d %s", code, body)
	}
}
