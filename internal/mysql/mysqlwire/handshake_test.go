package mysqlwire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"testing"
)

// pipeWires returns two ends of a connection, closed after the test.
func pipeWires(t *testing.T) (client, server *wire) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return &wire{conn: a, in: newPacketReader(a, 4096, loginBytesMax)},
		&wire{conn: b, in: newPacketReader(b, 4096, loginBytesMax)}
}

// The vector was computed with another implementation of the formula. Tests that log in to a
// mysqld show that mysqld uses this formula.
func TestScramble(t *testing.T) {
	got := scramble("password", []byte("abcdefghijklmnopqrst"))
	const want = "6584c404bc44a3d014cacc4fc823edc02991a53d5ae825ea0f91c7a0f1f26653"
	if hex.EncodeToString(got) != want {
		t.Errorf("got %x, want %s", got, want)
	}
	if scramble("", []byte("n")) != nil {
		t.Error("an empty password must give an empty answer")
	}
}

func TestLoginAndGreet(t *testing.T) {
	for _, tc := range []struct {
		name, user, password string
		ok                   bool
	}{
		{"right", "feed", "secret", true},
		{"wrong password", "feed", "Secret", false},
		{"empty password", "feed", "", false},
		{"wrong user", "fee", "secret", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, server := pipeWires(t)
			greeted := make(chan error, 1)
			go func() { greeted <- greet(server, "9.7.4", 7, "feed", "secret") }()
			err := login(client, tc.user, tc.password)
			served := <-greeted
			if tc.ok && (err != nil || served != nil) {
				t.Fatalf("client %v, server %v", err, served)
			}
			if tc.ok {
				return
			}
			if e, is := errors.AsType[*ServerError](err); !is || e.Code != 1045 || !errors.Is(served, errAccessDenied) {
				t.Fatalf("client %v, server %v", err, served)
			}
		})
	}
}

// A client whose default is another plugin is asked to switch.
func TestGreetSwitchesPlugin(t *testing.T) {
	client, server := pipeWires(t)
	greeted := make(chan error, 1)
	go func() { greeted <- greet(server, "9.7.4", 7, "feed", "secret") }()
	if _, err := client.read(); err != nil {
		t.Fatal(err)
	}
	response := bytes.Replace(loginResponse("feed", nil), []byte(authPlugin), []byte("mysql_native_password"), 1)
	if err := client.write(response); err != nil {
		t.Fatal(err)
	}
	request, err := client.read()
	if err != nil {
		t.Fatal(err)
	}
	_, answer, err := authStep(request, "secret")
	if err != nil || client.write(answer) != nil {
		t.Fatal(err)
	}
	if more, err := client.read(); err != nil || !bytes.Equal(more, []byte{headerAuthMore, authFastOK}) {
		t.Fatalf("%x, %v", more, err)
	}
	if err := errors.Join(client.expectOK(), <-greeted); err != nil {
		t.Fatal(err)
	}
}

// mysqld's side of a login, step by step.
func TestLogin(t *testing.T) {
	nonce := []byte("abcdefghijklmnopqrst")
	switchTo := func(plugin string) []byte {
		return append([]byte{headerEOF}, (plugin + "\x00" + string(nonce) + "\x00")...)
	}
	for _, tc := range []struct {
		name string
		// steps alternate: what the server sends, what it must get back (nil:
		// nothing).
		steps [][2][]byte
		want  error
	}{
		{"no cached hash", [][2][]byte{{{headerAuthMore, authFull}, []byte("secret\x00")}, {okPayload(), nil}}, nil},
		{"cached hash", [][2][]byte{{{headerAuthMore, authFastOK}, nil}, {okPayload(), nil}}, nil},
		{"switched", [][2][]byte{{switchTo(authPlugin), scramble("secret", nonce)}, {okPayload(), nil}}, nil},
		{"other plugin", [][2][]byte{{switchTo("mysql_native_password"), nil}}, ErrAuthPlugin},
		{"nonsense", [][2][]byte{{{0x77}, nil}}, ErrMalformed},
		{"empty", [][2][]byte{{{}, nil}}, ErrMalformed},
		{"endless", [][2][]byte{
			{{headerAuthMore, authFastOK}, nil}, {{headerAuthMore, authFastOK}, nil},
			{{headerAuthMore, authFastOK}, nil}, {{headerAuthMore, authFastOK}, nil},
		}, ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, server := pipeWires(t)
			served := make(chan error, 1)
			go func() { served <- serveLogin(server, nonce, tc.steps) }()
			if err := login(client, "tap", "secret"); !errors.Is(err, tc.want) {
				t.Errorf("login: %v, want %v", err, tc.want)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

func serveLogin(server *wire, nonce []byte, steps [][2][]byte) error {
	if err := server.command(greeting("9.7.4", 1, capsOurs, nonce)); err != nil {
		return err
	}
	response, err := server.read()
	if err != nil {
		return err
	}
	got, err := parseLogin(response)
	if err != nil || got.user != "tap" || got.plugin != authPlugin || !bytes.Equal(got.auth, scramble("secret", nonce)) {
		return errors.Join(err, errors.New("wrong login of "+got.user))
	}
	for _, step := range steps {
		if err := server.write(step[0]); err != nil {
			return err
		}
		if step[1] == nil {
			continue
		}
		if got, err := server.read(); err != nil || !bytes.Equal(got, step[1]) {
			return errors.Join(err, errors.New("wrong answer "+hex.EncodeToString(got)))
		}
	}
	return nil
}

func TestGreetingRefusesOldServers(t *testing.T) {
	good := greeting("9.7.4", 1, capsOurs, bytes.Repeat([]byte{'n'}, nonceBytes))
	at := strings.Index(string(good), "9.7.4\x00") + len("9.7.4\x00") + 13
	bad := bytes.Clone(good)
	bad[at] &^= 0x02 // CLIENT_PROTOCOL_41 is bit 9
	bad[at+1] &^= 0x02
	for name, payload := range map[string][]byte{"capabilities": bad, "version": append([]byte{9}, good[1:]...), "short": good[:30]} {
		if _, err := parseGreeting(payload); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
