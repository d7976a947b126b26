package ownport

import "testing"

// TestMysqldBind: mysqld listens on an address that clients reach only if that address is fenced, or if the operator
// accepts stale reads there. The agent reaches mysqld on loopback.
func TestMysqldBind(t *testing.T) {
	for name, c := range map[string]struct {
		bind     string
		fence    Fence
		unfenced bool
		want     string
	}{
		"loopback":    {"127.0.0.2", nil, false, "127.0.0.2"},
		"not allowed": {"10.0.0.1", nil, false, "127.0.0.1"},
		"fenced":      {"10.0.0.1", &fakeFence{}, false, "127.0.0.1,10.0.0.1"},
		"unfenced":    {"10.0.0.1", nil, true, "127.0.0.1,10.0.0.1"},
	} {
		var p Port
		if c.fence != nil {
			p.Take(c.fence, nil, nil)
		}
		if c.unfenced {
			p.Unfence()
		}
		if got := p.Binds(Address{Bind: c.bind}); got != c.want {
			t.Errorf("%s: mysqld listens on %s, want %s", name, got, c.want)
		}
	}
}

func TestFencedAddress(t *testing.T) {
	for bind, want := range map[string]string{
		"127.0.0.1": "", "127.1.2.3": "", "::1": "", "10.0.0.1": "10.0.0.1:3306", "fd00::1": "[fd00::1]:3306",
	} {
		got := ""
		if a, fenced := (Address{bind, 3306}).Fenced(); fenced {
			got = a.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", bind, got, want)
		}
	}
}
