package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/front/control"
)

// asksVariable makes this test program send one request to the socket that it names, as the
// account that runs it.
const asksVariable = "QUORATE_TEST_ASKS"

func asks() {
	socket := os.Getenv(asksVariable)
	if socket == "" {
		return
	}
	answer, err := Control(context.Background(), socket, control.Request{Name: "x", By: "root"})
	switch {
	case errors.Is(err, fs.ErrPermission):
		os.Stdout.WriteString("no permission")
	case err != nil:
		os.Stdout.WriteString(err.Error())
	default:
		os.Stdout.WriteString(answer.Node)
	}
	os.Exit(0)
}

// socketDir returns a directory that everybody may enter.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "qs")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// askAs runs this program as another account.
func askAs(t *testing.T, socket string, uid, gid uint32, groups ...uint32) string {
	t.Helper()
	program := filepath.Join(socketDir(t), "asks") // one that everybody may run
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir, cmd.Env = "/", append(os.Environ(), asksVariable+"="+socket, "SUDO_USER=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// echo answers with who asked.
func echo(_ context.Context, r control.Request) control.Answer {
	return control.Answer{Code: control.CodeOK, Node: r.By}
}

func TestControl(t *testing.T) {
	var got control.Request
	answers := map[string]control.Answer{
		"node.set": {Code: control.CodeOK, Node: "b", Index: 7, Result: json.RawMessage(`{"changed":true}`)},
		"other":    {Code: control.CodeNoLeader, Error: "nobody leads", Node: "a"},
	}
	socket := filepath.Join(socketDir(t), "s")
	s := startWith(t, Config{Socket: socket}, &fakeProvider{status: statusOf("replica", "running"), control: func(_ context.Context, r control.Request) control.Answer {
		got = r
		return answers[r.Name]
	}})
	for name, want := range answers {
		request := control.Request{Name: name, Args: json.RawMessage(`{"name":"b"}`)}
		answer, err := Control(t.Context(), socket, request)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want.Error+string(want.Code), answer.Error+string(answer.Code)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		got.By = ""
		if d := cmp.Diff(request, got); d != "" {
			t.Errorf("%s: the provider got (-want +got):\n%s", name, d)
		}
	}
	if st, err := FetchStatus(t.Context(), socket, ""); err != nil || st.Self != "a" {
		t.Errorf("the socket answers what the port does: %+v, %v", st, err)
	}
	// The port takes none.
	resp, err := http.Post("http://"+s.Addr().String()+"/control/node.set", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(string(text), socket) {
		t.Errorf("the port: %d %s", resp.StatusCode, text)
	}
}

// refusals sends the text of each warning.
type refusals chan<- string

func (c refusals) Write(line []byte) (int, error) {
	c <- string(line)
	return len(line), nil
}

// TestControlOfACommandThatEnded: the agent stood still, and the command was given up meanwhile. Before, its request
// was carried out once the agent went on: the primary moved, or a node was fenced, when nobody expected it any more.
// A command that has only ended its request (half-close) still waits.
func TestControlOfACommandThatEnded(t *testing.T) {
	socket := filepath.Join(socketDir(t), "s")
	ends := make(chan string, 2)
	s := New(Config{Listen: "127.0.0.1:0", Socket: socket, Logger: slog.New(slog.NewTextHandler(refusals(ends), &slog.HandlerOptions{Level: slog.LevelWarn}))},
		&fakeProvider{control: func(_ context.Context, r control.Request) control.Answer {
			ends <- "carried out " + r.Name
			return control.Answer{Code: control.CodeOK}
		}})
	if err := errors.Join(s.Listen(), s.ListenControl()); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(*net.UnixConn) error{"late": (*net.UnixConn).Close, "half": (*net.UnixConn).CloseWrite} {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if err == nil {
			_, err = io.WriteString(conn, "POST /control/"+name+" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
		}
		if err := errors.Join(err, end(conn)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	got := []string{<-ends, <-ends}
	slices.Sort(got)
	if got[0] != "carried out half" || !strings.Contains(got[1], "was not carried out") || !strings.Contains(got[1], "name=late") {
		t.Errorf("%q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestWhoMayAsk: the kernel names the account, whatever the request says.
func TestWhoMayAsk(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	socket := filepath.Join(socketDir(t), "s")
	startWith(t, Config{Socket: socket}, &fakeProvider{control: echo})
	for said, want := range map[string]string{"": me.Username + "@" + host, "ann": me.Username + "@" + host + " (sudo by ann)"} {
		if os.Geteuid() != 0 {
			want = me.Username + "@" + host
		}
		answer, err := Control(t.Context(), socket, control.Request{Name: "x", By: said})
		if err != nil || answer.Node != want {
			t.Errorf("said %q: %q, %v, want %q", said, answer.Node, err, want)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can ask as somebody else")
	}
	const uid, gid = 54321, 54322
	if got := askAs(t, socket, uid, gid); got != "no permission" {
		t.Errorf("another account: %q", got)
	}
	if err := os.Chmod(socket, 0o777); err != nil { // somebody was helpful
		t.Fatal(err)
	}
	if got := askAs(t, socket, uid, gid); !strings.Contains(got, "403 Forbidden") {
		t.Errorf("another account, past the mode: %q", got)
	}
}

// TestGroupMayAsk: with a group, its members may ask, whichever of their groups it is, and
// nobody else may.
func TestGroupMayAsk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can ask as somebody else")
	}
	const uid = 54321
	group, err := user.LookupGroup("daemon") // every system has it
	if err != nil {
		t.Fatal(err)
	}
	id, err := strconv.Atoi(group.Gid)
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	socket := filepath.Join(socketDir(t), "s")
	startWith(t, Config{Socket: socket, Group: "daemon"}, &fakeProvider{control: echo})
	for name, groups := range map[string][2]uint32{"its own group": {uint32(id), 54323}, "another of its groups": {54322, uint32(id)}} {
		if got, want := askAs(t, socket, uid, groups[0], groups[1]), "uid 54321@"+host; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := askAs(t, socket, uid, 54322); got != "no permission" {
		t.Errorf("none of its groups: %q", got)
	}
	if err := os.Chmod(socket, 0o777); err != nil { // somebody was helpful
		t.Fatal(err)
	}
	if got := askAs(t, socket, uid, 54322); !strings.Contains(got, "403 Forbidden") {
		t.Errorf("none of its groups, past the mode: %q", got)
	}
}

// TestControlSocketInTheWay: the socket of a killed agent is replaced, and no other file is.
func TestControlSocketInTheWay(t *testing.T) {
	dir := socketDir(t)
	socket := filepath.Join(dir, "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if err := New(Config{Socket: socket}, nil).ListenControl(); err == nil || !strings.Contains(err.Error(), "in use by another agent") {
		t.Errorf("one that answers: %v", err)
	}
	left.Close()
	s := New(Config{Socket: socket}, nil)
	if err := s.ListenControl(); err != nil {
		t.Errorf("one that nobody answers: %v", err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	s.Unlisten()
	if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := New(Config{Socket: file}, nil).ListenControl(); err == nil || !strings.Contains(err.Error(), "another file of that name") {
		t.Errorf("a file: %v", err)
	}
	if err := New(Config{Socket: socket, Group: "no-such-group"}, nil).ListenControl(); err == nil || !strings.Contains(err.Error(), "control.group") {
		t.Errorf("an unknown group: %v", err)
	}
}

// TestControlSocketOfOneWhoIsBusy: a socket that accepts no connection now may still have an
// owner.
func TestControlSocketOfOneWhoIsBusy(t *testing.T) {
	socket := filepath.Join(socketDir(t), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		t.Cleanup(func() { _ = unix.Close(fd) })
		err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: socket}), unix.Listen(fd, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	waits, err := net.Dial("unix", socket) // the only place in the kernel's queue
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = waits.Close() })
	if err := New(Config{Socket: socket}, nil).ListenControl(); err == nil || !strings.Contains(err.Error(), "find out whether another agent uses") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("the socket of another agent: %v", err)
	}
}

// TestControlSocketInOthersDirectory: no socket is opened where other accounts could replace
// it.
func TestControlSocketInOthersDirectory(t *testing.T) {
	dir := socketDir(t)
	for mode, want := range map[fs.FileMode]bool{0o755: true, 0o775: false, 0o757: false, 0o777: false, 0o777 | fs.ModeSticky: true} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		s := New(Config{Socket: filepath.Join(dir, "s")}, nil)
		err := s.ListenControl()
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "others may write") {
			t.Errorf("%v: %v", mode, err)
		}
		s.Unlisten()
	}
}

func TestControlRefusesWhatIsNoRequest(t *testing.T) {
	socket := filepath.Join(socketDir(t), "s")
	startWith(t, Config{Socket: socket}, &fakeProvider{})
	for body, want := range map[string]int{"{": http.StatusBadRequest, strings.Repeat(" ", control.RequestBytesMax+1): http.StatusBadRequest} {
		resp, err := request(t.Context(), socket, http.MethodPost, "/control/x", "", []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%d, want %d", resp.StatusCode, want)
		}
	}
}

// TestProfilesAreForThisHost: profiles are neither for other hosts nor for a foreign page whose
// name points here. Without Config.Pprof there are none.
func TestProfilesAreForThisHost(t *testing.T) {
	s := New(Config{Pprof: true, Logger: slog.New(slog.DiscardHandler)}, &fakeProvider{})
	off := httptest.NewRecorder()
	New(Config{}, &fakeProvider{}).handler().ServeHTTP(off, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/", nil))
	if off.Code != http.StatusNotFound {
		t.Errorf("not asked for: %d, want %d", off.Code, http.StatusNotFound)
	}
	for name, c := range map[string]struct {
		remote, local, host string
		want                int
	}{
		"loopback":          {"127.0.0.1:4711", "127.0.0.1:7401", "localhost:7401", http.StatusOK},
		"loopback 6":        {"[::1]:4711", "[::1]:7401", "[::1]:7401", http.StatusOK},
		"own address":       {"10.0.0.2:4711", "10.0.0.2:7401", "10.0.0.2:7401", http.StatusOK},
		"another host":      {"10.0.0.3:4711", "10.0.0.2:7401", "10.0.0.2:7401", http.StatusForbidden},
		"rebound name":      {"127.0.0.1:4711", "127.0.0.1:7401", "evil.example:7401", http.StatusForbidden},
		"an address unread": {"pipe", "127.0.0.1:7401", "127.0.0.1:7401", http.StatusForbidden},
	} {
		local, err := net.ResolveTCPAddr("tcp", c.local)
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(local))
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/debug/pprof/", nil)
		r.RemoteAddr, r.Host = c.remote, c.host
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d: %s", name, w.Code, c.want, w.Body)
		}
	}
}
