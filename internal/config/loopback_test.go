package config

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// TestOnLoopback: where a host's own name is an address of its loopback, as Debian's installer writes it, an agent
// that listens at that name is not reached from other hosts.
func TestOnLoopback(t *testing.T) {
	at := map[string]string{
		"db1": "127.0.1.1", "db2": "203.0.113.2", "db3": "127.0.0.3", "localhost": "::1 127.0.0.1", "both": "203.0.113.1 127.0.1.1", "mapped": "127.0.1.1 203.0.113.1", "v6": "::1",
	}
	lookup := func(_ context.Context, host string) (ips []net.IPAddr, err error) {
		if ip := net.ParseIP(host); ip != nil {
			return []net.IPAddr{{IP: ip}}, nil
		}
		for text := range strings.FieldsSeq(at[host]) {
			ips = append(ips, net.IPAddr{IP: net.ParseIP(text)})
		}
		if ips == nil {
			err = errors.New("no such host")
		}
		return ips, err
	}
	for _, c := range []struct{ peer, others, want string }{
		{"db1:7400", "db1:7400 db2:7400", "127.0.1.1"},
		{"db1:7400", "gone:7400 db2:7400", "127.0.1.1"},
		{"db1:7400", "203.0.113.3:7400", "127.0.1.1"},
		{"127.0.0.1:7400", "203.0.113.3:7400", "127.0.0.1"},
		{"localhost:7400", "db2:7400", "127.0.0.1"},
		{"mapped:7400", "db2:7400", "127.0.1.1"},
		{"v6:7400", "db2:7400", "::1"},
		// All on one host.
		{"db1:7400", "db1:7400 db3:7400", ""},
		{"127.0.0.1:7400", "127.0.0.2:7400 [::1]:7400 localhost:7400", ""},
		{"db1:7400", "", ""},
		// Not known.
		{"db1:7400", "gone:7400", ""},
		{"gone:7400", "db2:7400", ""},
		// Right.
		{"db2:7400", "db1:7400 203.0.113.3:7400", ""},
		{"both:7400", "db2:7400", ""},
		{"203.0.113.1:7400", "db2:7400", ""},
	} {
		got := onLoopback(t.Context(), lookup, c.peer, strings.Fields(c.others))
		if (got == "") != (c.want == "") || !strings.Contains(got, "which is "+c.want+" on this host") && c.want != "" {
			t.Errorf("%s beside %s: %q, want %q", c.peer, c.others, got, c.want)
		}
	}
	if text := OnLoopback(t.Context(), "127.0.0.1:7400", []string{"127.0.0.2:7400"}); text != "" {
		t.Errorf("a cluster on one host: %s", text)
	}
}

// TestOnLoopbackKnowsThisHost: a peer at another address of this host is on this host.
func TestOnLoopbackKnowsThisHost(t *testing.T) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Skip(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
			if text := OnLoopback(t.Context(), "127.0.0.1:7400", []string{net.JoinHostPort(n.IP.String(), "7400")}); text != "" {
				t.Errorf("%v is an address of this host: %s", n.IP, text)
			}
		}
	}
}
