package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
)

const (
	readToken    = "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
	operateToken = "oooooooooooooooooooooooooooooooo"
)

// tokensFile writes a file of tokens.
func tokensFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// answering is a provider that carries out the requests of the versioned API.
func answering(t *testing.T, rows []cluster.HistoryRow) func(context.Context, control.Request) control.Answer {
	return func(_ context.Context, r control.Request) control.Answer {
		var result any
		switch r.Name {
		case "history":
			result = rows
		case "switchover":
			result = cluster.Switchover{From: "a", To: "b", Why: r.By, Notes: []string{string(r.Args)}}
		case "maintenance":
			if strings.Contains(string(r.Args), "refuse") {
				return control.Answer{Code: control.CodeFailed, Error: "not now"}
			}
			return control.Answer{Code: control.CodeNoLeader, Error: "nobody leads"}
		}
		raw, err := json.Marshal(result)
		if err != nil {
			t.Error(err)
		}
		return control.Answer{Code: control.CodeOK, Node: "a", Result: raw}
	}
}

// send sends a request with a token and headers, written NAME: VALUE.
func send(t *testing.T, s *Server, method, path, token, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func failureCode(t *testing.T, body string) control.Code {
	t.Helper()
	var f control.Failure
	if err := json.Unmarshal([]byte(body), &f); err != nil || f.Error == "" {
		t.Errorf("no failure in JSON: %q", body)
	}
	return f.Code
}

// TestWhoMayRead: everybody may read, unless there is a token with the role read. Over loopback a
// request with a foreign name in Host is refused.
func TestWhoMayRead(t *testing.T) {
	open := startWith(t, Config{TokensFile: tokensFile(t, "operate ann "+operateToken)}, &fakeProvider{status: statusOf("replica", "running"), control: answering(t, nil)})
	socket := filepath.Join(socketDir(t), "s")
	closed := startWith(t, Config{Socket: socket, TokensFile: tokensFile(t, "# ours", "read prom "+readToken, "operate ann "+operateToken)},
		&fakeProvider{status: statusOf("replica", "running"), control: answering(t, nil)})
	for _, path := range []string{"/status", "/metrics", "/v1/status", "/v1/nodes", "/v1/history"} {
		for _, c := range []struct {
			s     *Server
			token string
			host  string
			want  int
		}{
			{open, "", "", 200},
			{open, "", "localhost:7401", 200},
			{open, "", "evil.example", 403},
			{closed, "", "", 401},
			{closed, readToken + "x", "", 401},
			{closed, readToken, "", 200},
			{closed, readToken, "db1.example", 200}, // no foreign page has the token
			{closed, operateToken, "", 200},
		} {
			var headers []string
			if c.host != "" {
				headers = []string{"Host: " + c.host}
			}
			code, body := send(t, c.s, "GET", path, c.token, "", headers...)
			if code != c.want {
				t.Errorf("%s, token %q, host %q: %d, want %d", path, c.token, c.host, code, c.want)
			}
			if code >= 400 {
				failureCode(t, body)
			}
		}
	}
	for _, path := range []string{"/", "/app.js", "/v1/openapi.json"} {
		if code, _ := send(t, closed, "GET", path, "", ""); code != 200 {
			t.Errorf("%s says nothing of the cluster, and answers %d", path, code)
		}
	}
	if _, err := FetchStatus(t.Context(), closed.Addr().String(), ""); !errors.Is(err, ErrToken) {
		t.Errorf("the command line without a token: %v", err)
	}
	if _, err := FetchStatus(t.Context(), closed.Addr().String(), readToken); err != nil {
		t.Errorf("with one: %v", err)
	}
	if _, err := FetchStatus(t.Context(), socket, ""); err != nil {
		t.Errorf("over the socket: %v", err)
	}
	var n status.Node
	code, body := send(t, closed, "GET", "/replica", "", "")
	if err := json.Unmarshal([]byte(body), &n); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(status.Node{Name: "a", Role: status.RoleReplica}, n); code != http.StatusServiceUnavailable || d != "" {
		t.Errorf("a health check without a token: %d (-want +got):\n%s", code, d)
	}
}

// TestWhoMayOperate: a request needs a token with the role operate, and must come from this
// host and from no foreign page.
func TestWhoMayOperate(t *testing.T) {
	provider := &fakeProvider{status: statusOf("replica", "running"), control: answering(t, nil)}
	none := startWith(t, Config{}, provider)
	s := startWith(t, Config{TokensFile: tokensFile(t, "read prom "+readToken, "operate ann "+operateToken)}, provider)
	readers := startWith(t, Config{TokensFile: tokensFile(t, "read prom "+readToken)}, provider)
	host, _ := os.Hostname()
	for name, c := range map[string]struct {
		s       *Server
		token   string
		body    string
		headers []string
		want    int
		code    control.Code
	}{
		"there are no tokens":       {none, operateToken, "{}", nil, 403, control.CodeNoTokens},
		"no token":                  {s, "", "{}", nil, 401, control.CodeUnauthorized},
		"nobody's token":            {s, strings.Repeat("x", 32), "{}", nil, 401, control.CodeUnauthorized},
		"a token to read":           {s, readToken, "{}", nil, 403, control.CodeReadOnlyToken},
		"a token to read, no other": {readers, readToken, "{}", nil, 403, control.CodeReadOnlyToken},
		"nobody's, and none may":    {readers, operateToken, "{}", nil, 401, control.CodeUnauthorized},
		"a foreign page":            {s, operateToken, "{}", []string{"Sec-Fetch-Site: cross-site"}, 403, control.CodeForeignOrigin},
		"a foreign page, older":     {s, operateToken, "{}", []string{"Origin: http://evil.example"}, 403, control.CodeForeignOrigin},
		"a name that points here":   {s, operateToken, "{}", []string{"Host: evil.example"}, 403, control.CodeForeignHost},
		"a form":                    {s, operateToken, "{}", []string{"Content-Type: text/plain"}, 415, control.CodeInvalid},
		"no object":                 {s, operateToken, "[]", nil, 400, control.CodeInvalid},
		"a null":                    {s, operateToken, `{"to": null}`, nil, 400, control.CodeInvalid},
		"two objects":               {s, operateToken, "{} {}", nil, 400, control.CodeInvalid},
		"what it does not know":     {s, operateToken, `{"too": "b"}`, nil, 400, control.CodeInvalid},
		"a wrong type":              {s, operateToken, `{"to": 5}`, nil, 400, control.CodeInvalid},
		"too long":                  {s, operateToken, `{"to": "` + strings.Repeat("b", operateBytesMax) + `"}`, nil, 413, control.CodeInvalid},
		"the right one":             {s, operateToken, `{"to": "b"}`, []string{"Sec-Fetch-Site: same-origin"}, 200, ""},
		"the right one, by program": {s, operateToken, `{}`, nil, 200, ""},
	} {
		code, body := send(t, c.s, "POST", "/v1/switchover", c.token, c.body, c.headers...)
		if strings.Contains(body, "Go ") || strings.Contains(body, "unmarshal") {
			t.Errorf("%s: it tells of the program, not of the request: %s", name, body)
		}
		if code != c.want {
			t.Errorf("%s: %d, want %d: %s", name, code, c.want, body)
			continue
		}
		fits(t, "POST", "/v1/switchover", code, body)
		if code != 200 {
			if got := failureCode(t, body); got != c.code {
				t.Errorf("%s: %s, want %s", name, got, c.code)
			}
			continue
		}
		var done cluster.Switchover
		if err := json.Unmarshal([]byte(body), &done); err != nil {
			t.Fatal(err)
		}
		var asked cluster.SwitchoverRequest
		if err := json.Unmarshal([]byte(done.Notes[0]), &asked); err != nil {
			t.Fatal(err)
		}
		if done.Why != "token ann@"+host || asked.MaxPause != cluster.MaxPauseDefault || asked.Wait != cluster.WaitDefault {
			t.Errorf("%s: by %q: %+v", name, done.Why, asked)
		}
	}
	code, body := send(t, s, "POST", "/v1/maintenance", operateToken, `{"on": true}`)
	if code != 503 || failureCode(t, body) != control.CodeNoLeader {
		t.Errorf("nobody leads: %d %s", code, body)
	}
	fits(t, "POST", "/v1/maintenance", code, body)
	if code, body := send(t, s, "POST", "/v1/maintenance", operateToken, `{"on": true, "reason": "refuse"}`); code != 409 || failureCode(t, body) != control.CodeFailed {
		t.Errorf("it cannot be done now: %d %s", code, body)
	}
}

// TestMaintenanceSaysWhat: a body that does not say on or off ends no maintenance, and nothing is forced.
func TestMaintenanceSaysWhat(t *testing.T) {
	var asked []string
	s := startWith(t, Config{TokensFile: tokensFile(t, "operate ann "+operateToken)}, &fakeProvider{control: func(_ context.Context, r control.Request) control.Answer {
		asked = append(asked, string(r.Args))
		return control.Answer{Code: control.CodeOK, Result: []byte("{}")}
	}})
	for body, want := range map[string]string{
		`{}`: `"on" is missing`, `{"reason": "x"}`: `"on" is missing`, `{"on": true, "force": true}`: `unknown field`, `{"on": null}`: `"on" is null`,
	} {
		code, said := send(t, s, "POST", "/v1/maintenance", operateToken, body)
		var f control.Failure
		if err := json.Unmarshal([]byte(said), &f); err != nil || code != 400 || !strings.Contains(f.Error, want) {
			t.Errorf("%s: %d %s, want %q", body, code, said, want)
		}
	}
	if code, said := send(t, s, "POST", "/v1/maintenance", operateToken, `{"on": false, "dry_run": true}`); code != 200 {
		t.Errorf("it says off: %d %s", code, said)
	}
	if d := cmp.Diff([]string{`{"on":false,"dry_run":true}`}, asked); d != "" {
		t.Errorf("asked for (-want +got):\n%s", d)
	}
}

// TestForeignNames: a foreign page whose name points here by DNS learns only a name and a role, also
// where the port has an address of a network and the browser is on this host.
func TestForeignNames(t *testing.T) {
	s := New(Config{Logger: slog.New(slog.DiscardHandler)}, &fakeProvider{status: statusOf("replica", "running")})
	h := s.handler()
	for _, remote := range []string{"127.0.0.1:1", "10.0.0.1:1"} { // the port is at 10.0.0.1
		for _, path := range []string{"/health", "/liveness", "/readiness", "/primary", "/replica"} {
			w := newRecorder()
			h.ServeHTTP(w, newRequest(t, "GET", path, "evil.example", remote))
			var n status.Node
			if err := json.Unmarshal([]byte(w.body.String()), &n); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(status.Node{Name: "a", Role: status.RoleReplica}, n); d != "" {
				t.Errorf("%s from %s (-want +got):\n%s", path, remote, d)
			}
		}
		for _, path := range []string{"/metrics", "/status", "/v1/status"} {
			w := newRecorder()
			h.ServeHTTP(w, newRequest(t, "GET", path, "evil.example", remote))
			if w.code != 403 || failureCode(t, w.body.String()) != control.CodeForeignHost {
				t.Errorf("%s from %s: %d %s", path, remote, w.code, w.body.String())
			}
		}
	}
	for _, path := range []string{"/metrics", "/health"} { // another host may read, and know this one by any name
		w := newRecorder()
		h.ServeHTTP(w, newRequest(t, "GET", path, "db1.example", "10.0.0.9:1"))
		if w.code >= 400 || path == "/health" && !strings.Contains(w.body.String(), "because") {
			t.Errorf("%s from another host: %d %s", path, w.code, w.body.String())
		}
	}
}

// TestOperateFromElsewhere: a token that has come over a network opens nothing.
func TestOperateFromElsewhere(t *testing.T) {
	s := New(Config{TokensFile: tokensFile(t, "operate ann "+operateToken), Logger: slog.New(slog.DiscardHandler)}, &fakeProvider{control: answering(t, nil)})
	if err := s.tokens.read(); err != nil {
		t.Fatal(err)
	}
	for remote, want := range map[string]int{"10.0.0.9:1": 403, "127.0.0.1:1": 200, "[::1]:1": 200, "10.0.0.1:1": 200} {
		r := newRequest(t, "POST", "/v1/switchover", "10.0.0.1:7401", remote)
		r.Header.Set("Authorization", "Bearer "+operateToken)
		w := newRecorder()
		s.handler().ServeHTTP(w, r)
		if w.code != want {
			t.Errorf("from %s: %d, want %d: %s", remote, w.code, want, w.body.String())
		}
		if w.code == 403 && failureCode(t, w.body.String()) != control.CodeNotFromHere {
			t.Errorf("from %s: %s", remote, w.body.String())
		}
	}
}

// TestOperateOfAClientThatEnded is TestControlOfACommandThatEnded for a client of the port.
func TestOperateOfAClientThatEnded(t *testing.T) {
	ends := make(chan string, 2)
	s := New(Config{Listen: "127.0.0.1:0", TokensFile: tokensFile(t, "operate ann "+operateToken),
		Logger: slog.New(slog.NewTextHandler(refusals(ends), &slog.HandlerOptions{Level: slog.LevelWarn}))},
		&fakeProvider{control: func(_ context.Context, r control.Request) control.Answer {
			ends <- "carried out " + r.Name
			return control.Answer{Code: control.CodeOK, Result: []byte("{}")}
		}})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	for i, body := range []string{`{"on": true}`, `{"on": false}`} {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err == nil {
			_, err = fmt.Fprintf(conn, "POST /v1/maintenance HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				operateToken, len(body), body)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			_ = conn.Close()
		}
		defer func() { _ = conn.Close() }()
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	got := []string{<-ends, <-ends}
	slices.Sort(got)
	if got[0] != "carried out maintenance" || !strings.Contains(got[1], "was not carried out") {
		t.Errorf("%q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestRefusedRequestsAreLogged: a refused request leaves a line with the reason, a few a minute for one
// address. No line has a token.
func TestRefusedRequestsAreLogged(t *testing.T) {
	var log strings.Builder
	s := New(Config{Socket: "/s", Pprof: true, TokensFile: tokensFile(t, "read prom "+readToken, "operate ann "+operateToken),
		Logger: slog.New(slog.NewTextHandler(&log, nil))}, &fakeProvider{control: answering(t, nil)})
	if err := s.tokens.read(); err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, host, remote, token string) string {
		log.Reset()
		r := newRequest(t, method, path, host, remote)
		r.Header.Set("Authorization", "Bearer "+token)
		w := newRecorder()
		s.handler().ServeHTTP(w, r)
		if strings.Contains(log.String(), readToken) || strings.Contains(log.String(), operateToken) {
			t.Errorf("%s %s: a token is in the log: %s", method, path, log.String())
		}
		return log.String()
	}
	const here = "127.0.0.1:1"
	for n, c := range []struct{ method, path, host, remote, token, want string }{
		{"GET", "/v1/status", "localhost", "", "", "a token is needed"},
		{"GET", "/metrics", "localhost", "", readToken + "x", "not in api.tokens_file"},
		{"POST", "/v1/switchover", "localhost", "", readToken, "the token of prom may only read"},
		{"POST", "/v1/switchover", "10.0.0.1", "", operateToken, "taken from this node's own host alone"},
		{"POST", "/v1/switchover", "evil.example", here, operateToken, "Host must be localhost"},
		{"POST", "/control/switchover", "localhost", "", "", "control socket alone: /s"},
		{"GET", "/debug/pprof/", "localhost", "", "", "own host only"},
	} {
		remote := c.remote
		if remote == "" {
			remote = fmt.Sprintf("10.0.0.%d:1", 10+n)
		}
		said := ask(c.method, c.path, c.host, remote, c.token)
		if !strings.Contains(said, "refused a request at the api port") || !strings.Contains(said, c.want) ||
			!strings.Contains(said, "remote="+remote) || !strings.Contains(said, c.method+" "+c.path) {
			t.Errorf("%s %s from %s: %q, want %q", c.method, c.path, remote, said, c.want)
		}
	}
	lines := 0
	for range 100 {
		lines += strings.Count(ask("GET", "/v1/status", "localhost", "10.0.0.99:1", ""), "\n")
	}
	if lines == 0 || lines > 10 {
		t.Errorf("100 refused requests of one address have %d lines", lines)
	}
	if said := ask("GET", "/v1/status", "localhost", here, readToken); said != "" {
		t.Errorf("who may read has a line: %s", said)
	}
}

// TestOtherPathsAndMethods: they are refused in JSON, too.
func TestOtherPathsAndMethods(t *testing.T) {
	s := start(t, &fakeProvider{control: answering(t, nil)})
	for asked, want := range map[string]int{"GET /v1/": 404, "GET /v1/nothing": 404, "POST /v1/status": 405, "GET /v1/switchover": 405, "DELETE /v1/events": 405} {
		method, path, _ := strings.Cut(asked, " ")
		code, body := send(t, s, method, path, "", "")
		if code != want {
			t.Errorf("%s: %d, want %d", asked, code, want)
		}
		failureCode(t, body)
	}
}

// TestTokensFile: an error names the line, without the token. A deleted line withdraws its token
// within a second. A file that others may read lets nobody in.
func TestTokensFile(t *testing.T) {
	for text, want := range map[string]string{
		"read prom":                          "line 1 has 2 words",
		"\nwrite prom " + readToken:          "line 2 begins with no role",
		"read p/q " + readToken:              "line 1: a name has letters",
		"read p short":                       "shorter than 32",
		"read p " + readToken + "\nread p x": "line 2: another line has that name",
	} {
		err := CheckTokens(tokensFile(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), readToken) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	path := tokensFile(t, "read prom "+readToken, "read grafana "+operateToken)
	s := startWith(t, Config{TokensFile: path}, &fakeProvider{})
	expect := func(why, token string, want int) {
		t.Helper()
		deadline := time.Now().Add(20 * tokensEvery)
		for {
			code, _ := send(t, s, "GET", "/v1/status", token, "")
			if code == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d, want %d", why, code, want)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	expect("its line is there", readToken, 200)
	if err := os.WriteFile(path, []byte("read grafana "+operateToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect("its line is gone", readToken, 401)
	expect("another line", operateToken, 200)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	expect("others may read it", operateToken, 503)
	if err := New(Config{Listen: "127.0.0.1:0", TokensFile: path, Logger: slog.New(slog.DiscardHandler)}, nil).Listen(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("an agent starts with it: %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("it is as it should be", operateToken, 200)
}

// TestTokensAreReadBeside: no request waits for the disk of the tokens' file, or for a FIFO in its
// place.
func TestTokensAreReadBeside(t *testing.T) {
	path := tokensFile(t, "read prom "+readToken)
	s := New(Config{TokensFile: path, Logger: slog.New(slog.DiscardHandler)}, &fakeProvider{status: statusOf("replica", "running")})
	ask := func() int {
		w, r := newRecorder(), newRequest(t, "GET", "/v1/status", "localhost", "127.0.0.1:1")
		r.Header.Set("Authorization", "Bearer "+readToken)
		s.handler().ServeHTTP(w, r)
		return w.code
	}
	if code := ask(); code != 503 {
		t.Errorf("before the file was read: %d", code)
	}
	if err := s.tokens.read(); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if code := ask(); code != 200 {
		t.Errorf("a request has looked at the file: %d", code)
	}
	read := make(chan error, 1)
	go func() { read <- s.tokens.read() }()
	select {
	case err := <-read:
		if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("a FIFO: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for whoever writes to the FIFO")
	}
	if code := ask(); code != 503 {
		t.Errorf("after that: %d", code)
	}
}

// stream opens a stream of events.
func stream(t *testing.T, s *Server) (*http.Response, *bufio.Reader) {
	t.Helper()
	return streamFrom(t, s, "127.0.0.1")
}

// streamFrom opens a stream from an address.
func streamFrom(t *testing.T, s *Server, address string) (*http.Response, *bufio.Reader) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: d.DialContext}}).Get("http://" + s.Addr().String() + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp, bufio.NewReader(resp.Body)
}

// nextEvent reads one event.
func nextEvent(t *testing.T, r *bufio.Reader) (name, data string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		field, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		switch field {
		case "event":
			name = value
		case "data":
			data = value
		case "":
			return name, data
		}
	}
}

// TestEvents: a stream sends the status again and again, and the history when it has grown.
func TestEvents(t *testing.T) {
	st := statusOf(status.RoleReplica, status.MysqldRunning)
	st.LastChange = &cluster.HistoryRow{At: time.Unix(1, 0)}
	s := start(t, &fakeProvider{status: st, control: answering(t, []cluster.HistoryRow{{What: cluster.HistoryFailover, Node: "b"}})})
	resp, events := stream(t, s)
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatalf("%s, %s", resp.Status, kind)
	}
	var names []string
	for range 3 {
		name, data := nextEvent(t, events)
		names = append(names, name)
		if name == eventHistory {
			fits(t, "GET", "/v1/history", 200, data)
		} else {
			fits(t, "GET", "/v1/status", 200, data)
		}
	}
	if d := cmp.Diff([]string{eventStatus, eventHistory, eventStatus}, names); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestStreamLivesLong: a stream lives longer than a request may, and ends after streamTime.
func TestStreamLivesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Logger: slog.New(slog.DiscardHandler)}, &fakeProvider{control: answering(t, nil)})
		w, begun := newRecorder(), time.Now()
		s.handler().ServeHTTP(w, newRequest(t, "GET", "/v1/events", "localhost", "127.0.0.1:1"))
		if took := time.Since(begun); took != streamTime || w.read.Before(begun.Add(streamTime)) || w.write.Before(time.Now()) {
			t.Errorf("it ended after %v; reading ends after %v, the last write %v later", took, w.read.Sub(begun), w.write.Sub(begun))
		}
		if n := strings.Count(w.body.String(), "event: status\n"); n < int(streamTime/streamEvery) {
			t.Errorf("the status was told %d times", n)
		}
	})
}

// TestStreamsAreBounded: one stream too many is refused, of one address and of all. There is a place again once a
// stream has ended.
func TestStreamsAreBounded(t *testing.T) {
	s := start(t, &fakeProvider{control: answering(t, nil)})
	var first *http.Response
	for _, address := range []string{"127.0.0.1", "127.0.0.2"} {
		for range streamsPerSource {
			resp, events := streamFrom(t, s, address)
			nextEvent(t, events)
			first = resp
		}
		resp, r := streamFrom(t, s, address)
		body, err := io.ReadAll(r)
		if err != nil || resp.StatusCode != 503 || failureCode(t, string(body)) != control.CodeBusy {
			t.Errorf("one too many from %s: %s %s, %v", address, resp.Status, body, err)
		}
	}
	if resp, _ := streamFrom(t, s, "127.0.0.3"); resp.StatusCode != 503 {
		t.Errorf("one too many of all: %s", resp.Status)
	}
	_ = first.Body.Close()
	deadline := time.Now().Add(10 * time.Second)
	for open, _ := s.streams.counts(); open == streamsMax; open, _ = s.streams.counts() {
		if time.Now().After(deadline) {
			t.Fatal("its place is not given back")
		}
		time.Sleep(time.Millisecond)
	}
	_, events := streamFrom(t, s, "127.0.0.3")
	nextEvent(t, events)
	if _, body := send(t, s, "GET", "/metrics", "", ""); !strings.Contains(body, "quorate_api_streams_refused_total 3\n") {
		t.Error("the refusals are not counted")
	}
}

// TestPageIsGuarded: the page may load only files of this port.
func TestPageIsGuarded(t *testing.T) {
	s := start(t, &fakeProvider{})
	for _, path := range []string{"/", "/app.js", "/style.css", "/icon.svg"} {
		resp, err := http.Get("http://" + s.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		policy := resp.Header.Get("Content-Security-Policy")
		if resp.StatusCode != 200 || !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %s, %s", path, resp.Status, policy)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func newRequest(t *testing.T, method, path, host, remote string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7401})),
		method, "http://"+host+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = remote
	r.Header.Set("Content-Type", "application/json")
	return r
}

// recorder is a response writer that accepts deadlines.
type recorder struct {
	code        int
	header      http.Header
	body        strings.Builder
	read, write time.Time
}

func newRecorder() *recorder { return &recorder{header: http.Header{}} }

func (r *recorder) Header() http.Header                { return r.header }
func (r *recorder) Write(p []byte) (int, error)        { return r.body.Write(p) }
func (r *recorder) WriteHeader(code int)               { r.code = code }
func (r *recorder) SetReadDeadline(t time.Time) error  { r.read = t; return nil }
func (r *recorder) SetWriteDeadline(t time.Time) error { r.write = t; return nil }
func (r *recorder) Flush()                             {}
