package api

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/control"
)

func TestControl(t *testing.T) {
	var got control.Request
	answers := map[string]control.Answer{
		"node.set": {Code: control.CodeOK, Node: "b", Index: 7, Result: json.RawMessage(`{"changed":true}`)},
		"other":    {Code: control.CodeNoLeader, Error: "nobody leads", Node: "a"},
	}
	s := start(t, &fakeProvider{control: func(_ context.Context, r control.Request) control.Answer {
		got = r
		return answers[r.Name]
	}})
	for name, want := range answers {
		request := control.Request{Name: name, By: "ann@db1", Args: json.RawMessage(`{"name":"b"}`)}
		answer, err := Control(t.Context(), s.Addr().String(), request)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want.Error+string(want.Code), answer.Error+string(answer.Code)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if d := cmp.Diff(request, got); d != "" {
			t.Errorf("%s: the provider got (-want +got):\n%s", name, d)
		}
	}
}

// TestControlIsForThisHost: nothing from elsewhere, and nothing that a page in a
// browser can send, reaches the agent.
func TestControlIsForThisHost(t *testing.T) {
	s := New(Config{}, &fakeProvider{control: func(context.Context, control.Request) control.Answer {
		return control.Answer{Code: control.CodeOK}
	}})
	for name, c := range map[string]struct {
		remote, local, host, kind string
		want                      int
	}{
		"loopback":          {"127.0.0.1:4711", "127.0.0.1:7401", "localhost:7401", "application/json", http.StatusOK},
		"loopback 6":        {"[::1]:4711", "[::1]:7401", "[::1]:7401", "application/json", http.StatusOK},
		"own address":       {"10.0.0.2:4711", "10.0.0.2:7401", "10.0.0.2:7401", "application/json", http.StatusOK},
		"another host":      {"10.0.0.3:4711", "10.0.0.2:7401", "10.0.0.2:7401", "application/json", http.StatusForbidden},
		"rebound name":      {"127.0.0.1:4711", "127.0.0.1:7401", "evil.example:7401", "application/json", http.StatusForbidden},
		"a form in a page":  {"127.0.0.1:4711", "127.0.0.1:7401", "127.0.0.1:7401", "text/plain", http.StatusUnsupportedMediaType},
		"an address unread": {"pipe", "127.0.0.1:7401", "127.0.0.1:7401", "application/json", http.StatusForbidden},
	} {
		local, err := net.ResolveTCPAddr("tcp", c.local)
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(local))
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/control/x", strings.NewReader("{}"))
		r.RemoteAddr, r.Host = c.remote, c.host
		r.Header.Set("Content-Type", c.kind)
		w := timedRecorder{httptest.NewRecorder()}
		s.handler().ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d: %s", name, w.Code, c.want, w.Body)
		}
	}
}

func TestControlRefusesWhatIsNoRequest(t *testing.T) {
	s := start(t, &fakeProvider{})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for body, want := range map[string]int{"{": http.StatusBadRequest, strings.Repeat(" ", control.RequestBytesMax+1): http.StatusBadRequest} {
		resp, err := client.Post("http://"+s.Addr().String()+"/control/x", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%d, want %d", resp.StatusCode, want)
		}
	}
	// An agent that is older has no such endpoint.
	old := httptest.NewServer(http.NotFoundHandler())
	defer old.Close()
	if _, err := Control(t.Context(), old.Listener.Addr().String(), control.Request{Name: "x"}); err == nil || !strings.Contains(err.Error(), "it answered 404") {
		t.Errorf("error %v", err)
	}
}

// timedRecorder takes deadlines, as a connection does.
type timedRecorder struct{ *httptest.ResponseRecorder }

func (timedRecorder) SetReadDeadline(time.Time) error  { return nil }
func (timedRecorder) SetWriteDeadline(time.Time) error { return nil }
