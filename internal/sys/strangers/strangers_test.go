package strangers

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func from(ip string) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), 4711))
}

// guest is a stranger of a test.
type guest struct {
	*Stay
	out bool
}

func enter(r *Room, ip string) *guest {
	g := &guest{}
	g.Stay = r.Enter(from(ip), func() { g.out = true })
	return g
}

func TestSourceOfAddress(t *testing.T) {
	for ip, want := range map[string]string{
		"10.0.0.1":         "10.0.0.1",
		"::ffff:10.0.0.1":  "10.0.0.1",
		"2001:db8:1:2::77": "2001:db8:1:2::",
		"fe80::1%eth0":     "fe80::1",
	} {
		if got := Source(from(ip)).String(); got != want {
			t.Errorf("the source of %s is %s, want %s", ip, got, want)
		}
	}
	if got := Source(&net.UnixAddr{}); got.IsValid() {
		t.Errorf("the source of a Unix socket is %s", got)
	}
}

func TestAllowedNetworks(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for ip, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "11.0.0.1": false, "2001:db8::1": true, "2001:db9::1": false,
	} {
		if got := Allowed(networks, from(ip)); got != want {
			t.Errorf("%s is allowed: %t", ip, got)
		}
		if !Allowed(nil, from(ip)) {
			t.Errorf("%s is not allowed, though everybody is", ip)
		}
	}
	if Allowed(networks, &net.UnixAddr{}) {
		t.Error("who has no address is in a network")
	}
	r := New(Limits{Max: 1, Allow: networks}, slog.New(slog.DiscardHandler))
	if r.Allows(from("11.0.0.1")) || !r.Allows(from("10.0.0.1")) || r.Stats().Refused != 1 {
		t.Errorf("refused %d", r.Stats().Refused)
	}
}

// twoEnds is a connection of which only the two addresses matter.
type twoEnds struct {
	net.Conn
	local, remote net.Addr
}

func (c twoEnds) LocalAddr() net.Addr  { return c.local }
func (c twoEnds) RemoteAddr() net.Addr { return c.remote }

func TestFromHere(t *testing.T) {
	for _, c := range []struct {
		local, remote string
		here          bool
	}{
		{"127.0.0.1", "127.0.0.1", true}, {"127.0.0.5", "127.0.0.9", true}, {"::1", "::1", true},
		{"::ffff:127.0.0.1", "::ffff:127.0.0.1", true}, {"10.0.0.1", "10.0.0.1", true}, {"::ffff:10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.2", false}, {"fd00::1", "fd00::2", false}, {"127.0.0.1", "10.0.0.2", false},
	} {
		if here := FromHere(twoEnds{local: from(c.local), remote: from(c.remote)}); here != c.here {
			t.Errorf("%s to %s: %t", c.remote, c.local, here)
		}
	}
}

// A source with many strangers never takes the place of another source's stranger, however many come.
func TestFullRoomExpelsFromSourceWithMost(t *testing.T) {
	r := New(Limits{Max: 4, PerSource: 4, Spare: time.Hour}, slog.New(slog.DiscardHandler))
	real := enter(r, "10.0.0.1")
	var silent []*guest
	for range 100 {
		silent = append(silent, enter(r, "10.0.0.66"))
	}
	for i, g := range silent {
		if want := i < 97; g.out != want {
			t.Errorf("stranger %d was expelled: %t", i, g.out)
		}
	}
	if s := r.Stats(); s.Inside != 4 || s.Expelled != 97 {
		t.Errorf("%d inside, %d expelled", s.Inside, s.Expelled)
	}
	if !real.Leave() || real.out || real.Leave() {
		t.Error("the real client was expelled, or left twice")
	}
	if silent[0].Leave() {
		t.Error("who was expelled left by itself")
	}
}

// Strangers from a known source, from which clients log in, are expelled last, however many they are.
func TestKnownSourceGoesLast(t *testing.T) {
	home := netip.MustParseAddr("10.0.0.1")
	r := New(Limits{Max: 4, PerSource: 4, Known: func(s netip.Addr) bool { return s == home }}, slog.New(slog.DiscardHandler))
	oldest, other := enter(r, "10.0.0.1"), enter(r, "10.0.0.66")
	for range 3 {
		enter(r, "10.0.0.1")
	}
	if oldest.out || !other.out {
		t.Errorf("the one at home was expelled: %t, the other one: %t", oldest.out, other.out)
	}
	if enter(r, "10.0.0.66"); !oldest.out {
		t.Error("all are at home, and the oldest one does not go")
	}
}

// Only a few strangers of an unknown source have a turn at a time. Strangers of other sources do not wait for them.
func TestTurns(t *testing.T) {
	home := netip.MustParseAddr("10.0.0.1")
	r := New(Limits{Max: 100, PerSource: 100, Turns: 2, Known: func(s netip.Addr) bool { return s == home }}, slog.New(slog.DiscardHandler))
	over, end := context.WithCancel(t.Context())
	end()
	turn := func(ip string) func() {
		done, err := enter(r, ip).Turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	first := turn("10.0.0.66")
	turn("10.0.0.66")
	if _, err := enter(r, "10.0.0.66").Turn(over); err == nil {
		t.Error("a third one has its turn")
	}
	turn("10.0.0.67")
	for range 9 {
		turn("10.0.0.1")
	}
	first()
	turn("10.0.0.66")
}

// A burst of one source is spared for as long as a login may take. After that any stranger may expel it.
func TestSourceWithManyIsSparedForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Limits{Max: 100, PerSource: 3, Spare: time.Second}, slog.New(slog.DiscardHandler))
		var burst []*guest
		for range 50 {
			burst = append(burst, enter(r, "10.0.0.66"))
		}
		if s := r.Stats(); s.Inside != 50 || s.Expelled != 0 {
			t.Fatalf("in a burst: %d inside, %d expelled", s.Inside, s.Expelled)
		}
		time.Sleep(time.Second)
		enter(r, "10.0.0.1")
		if s := r.Stats(); s.Inside != 4 || s.Expelled != 47 || !burst[46].out || burst[47].out {
			t.Fatalf("after it: %d inside, %d expelled", s.Inside, s.Expelled)
		}
	})
}

// Whoever comes and goes, the bounds hold, and the room's figures are right.
func TestRoomKeepsItsBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	limits := Limits{Max: 20, PerSource: 6}
	r := New(limits, slog.New(slog.DiscardHandler))
	var guests []*guest
	for range 20_000 {
		if len(guests) > 0 && random.IntN(3) == 0 {
			i := random.IntN(len(guests))
			if left := guests[i].Leave(); left == guests[i].out {
				t.Fatalf("left %t, expelled %t", left, guests[i].out)
			}
			guests = append(guests[:i], guests[i+1:]...)
		} else {
			guests = append(guests, enter(r, fmt.Sprintf("10.0.0.%d", random.IntN(random.IntN(9)+1))))
		}
		inside := 0
		bySource := map[netip.Addr]int{}
		for _, g := range guests {
			if !g.out {
				inside++
				bySource[g.source]++
			}
		}
		if s := r.Stats(); inside != s.Inside || inside > limits.Max || len(r.sources) != len(bySource) {
			t.Fatalf("%d of %d sources are inside, the room says %d of %d", inside, len(bySource), s.Inside, len(r.sources))
		}
		for source, n := range bySource {
			if n > limits.PerSource || n != len(r.sources[source].stays) {
				t.Fatalf("%s has %d strangers, the room says %d", source, n, len(r.sources[source].stays))
			}
		}
	}
}

// A flood makes only a few lines a minute, and the number of remembered sources is bounded.
func TestLogIsBoundedBySource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLog(slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 1000 {
			l.Warn(from("10.0.0.66"), fmt.Sprintf("another text %d", i))
		}
		l.Warn(from("10.0.0.1"), "a real node")
		text := out.String()
		if n := strings.Count(text, "\n"); n != linesMax+1 || !strings.Contains(text, "a real node") || !strings.Contains(text, "lines_left_out=996") {
			t.Fatalf("%d lines:\n%s", n, text)
		}
		time.Sleep(period)
		if !l.Warn(from("10.0.0.66"), "again") {
			t.Fatal("nothing is logged in the next period")
		}
		for i := range 10 * sourcesMax {
			l.Warn(from(fmt.Sprintf("10.1.%d.%d", i/256, i%256)), "many sources")
		}
		if len(l.about) > sourcesMax {
			t.Fatalf("%d sources are remembered", len(l.about))
		}
	})
}
