package following

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
)

// sitedNode is the primary of a site.
type sitedNode struct {
	Node
	state   cluster.State
	process *mysqld.Process
	access  cluster.Follow
	nodes   []status.Node
}

func (n sitedNode) Committed() (*cluster.Follow, uint64) { return n.state.Follow, n.state.Version }
func (n sitedNode) State() cluster.State                 { return n.state }
func (n sitedNode) SiteAccess() cluster.Follow           { return n.access }
func (n sitedNode) Cluster() string                      { return "east" }
func (n sitedNode) Own() status.Node                     { return status.Node{Name: "a", ServerVersion: "9.7.4"} }
func (n sitedNode) GTIDs() (executed, purged *gtid.Set)  { return &gtid.Set{}, &gtid.Set{} }
func (n sitedNode) Serving() (*mysqld.Process, uint64)   { return n.process, 1 }
func (n sitedNode) Changed() <-chan struct{}             { return nil }
func (n sitedNode) Wake()                                {}
func (n sitedNode) Nodes() []status.Node                 { return n.nodes }

// TestClosedForWhom: a site says that it is closed for a request only if its mysqld was last closed for that very
// request. A review found it: a yield right after a resume was answered with closed, while clients were let in.
func TestClosedForWhom(t *testing.T) {
	process, admin := new(mysqld.Process), (*mysqld.Admin)(nil)
	asked := &cluster.Follow{Site: "west", Token: "two"}
	for name, c := range map[string]struct {
		follow *cluster.Follow
		doors  Doors
		serves bool
		want   bool
	}{
		"ForThis":       {asked, Doors{admin, mysqld.Nobody, "two"}, true, true},
		"ForAnother":    {asked, Doors{admin, mysqld.Nobody, "one"}, true, false},
		"NotKnown":      {asked, Doors{}, true, false},
		"Open":          {asked, Doors{admin, mysqld.Everybody, ""}, true, false},
		"AdminsAlone":   {asked, Doors{admin, mysqld.Admins, "two"}, true, false},
		"NoPrimary":     {asked, Doors{admin, mysqld.Nobody, "two"}, false, false},
		"AnotherServer": {asked, Doors{new(mysqld.Admin), mysqld.Nobody, "two"}, true, false},
		"Follows":       {&cluster.Follow{Site: "west"}, Doors{admin, mysqld.Admins, ""}, true, true},
	} {
		node := sitedNode{state: cluster.State{Follow: c.follow}}
		if c.serves {
			node.process = process
		}
		s := NewService(node, nil, nil)
		s.Opened(c.doors)
		if got := s.view(); got.Closed != c.want || got.Follows != "west" || got.Token != c.follow.Token {
			t.Errorf("%s: %+v, want closed: %t", name, got, c.want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if waited := s.awaitDoors(ctx, func(d Doors) bool { return d == DoorsOf(admin, c.follow) }); waited != c.want {
			t.Errorf("%s: it is waited for: %t", name, waited)
		}
		cancel()
	}
}

// TestNobodyElsesSite: only the site that the configuration names is asked, and may ask.
func TestNobodyElsesSite(t *testing.T) {
	s := NewService(sitedNode{access: cluster.Follow{Site: "west", Source: "w1:1", User: "site"}}, nil, nil)
	for _, name := range []string{"", "north", "east"} {
		if s.agreed(name, cluster.Ballot{Number: 1, Site: name}) == nil {
			t.Errorf("site %q may ask", name)
		}
	}
	if f, err := s.access(cluster.Follow{Site: "north"}); err == nil {
		t.Errorf("site north is reached by %+v", f)
	}
	if f, err := s.access(cluster.Follow{Site: "west"}); err != nil || f.Source != "w1:1" || s.agreed("west", cluster.Ballot{Number: 1, Site: "west"}) != nil {
		t.Errorf("site west is reached by %+v: %v", f, err)
	}
	if s.agreed("west", cluster.Ballot{Number: 1, Site: "east"}) == nil {
		t.Error("site west may ask by an attempt of this one")
	}
	if NewService(sitedNode{}, nil, nil).agreed("", cluster.Ballot{}) == nil {
		t.Error("without a site, one may ask")
	}
}

// TestSilent: a site may be gone only if nothing is wrong on this side, and none of its nodes has refused. A missing
// password file was taken for a site that is gone: the errno in its error is a net.Error.
func TestSilent(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	gone := fmt.Errorf("ask w1:1: %w", dial)
	_, noFile := os.ReadFile(filepath.Join(t.TempDir(), "password"))
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"Gone":        {errors.Join(gone, fmt.Errorf("ask w2:1: %w", mysql.ErrInvalidConn)), true},
		"NoMajority":  {errors.Join(gone, fmt.Errorf("w2:1 answers: %w", control.Errorf(control.CodeNoLeader, "no majority"))), true},
		"NoSite":      {fmt.Errorf("reach site west: %w", ErrNoSite), false},
		"Reset":       {fmt.Errorf("ask w1:1: %w", &net.OpError{Op: "read", Err: syscall.ECONNRESET}), true},
		"NoName":      {fmt.Errorf("ask w1:1: %w", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "w1"}}), true},
		"NoPassword":  {errors.Join(gone, fmt.Errorf("read: %w", noFile)), false},
		"NoTLS":       {fmt.Errorf("ask w1:1: %w", &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}), false},
		"Denied":      {errors.Join(gone, fmt.Errorf("ask w2:1: %w", &mysql.MySQLError{Number: 1045})), false},
		"Certificate": {errors.Join(gone, fmt.Errorf("ask w2:1: %w", &tls.CertificateVerificationError{Err: io.EOF})), false},
		"Refused":     {errors.Join(gone, control.Errorf(control.CodeInvalid, "no request of a site")), false},
	} {
		if got := silent(c.err); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestPromotionAsksOnce: a promotion asks the other site both of its questions at once. A node that is gone costs
// askTimeout for each question: one after the other they took 13.5 s.
func TestPromotionAsksOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := cluster.Follow{Site: "west", Source: l.Addr().String(), User: "site", PasswordFile: file, Plain: true}
	s := NewService(sitedNode{access: f, state: cluster.State{Follow: &f}, process: new(mysqld.Process)}, nil, nil)
	ended := make(chan error, 1)
	go func() {
		_, err := s.sitePromote(t.Context(), control.Request{Name: "site.promote", Args: []byte(`{}`)})
		ended <- err
	}()
	var asked [2]net.Conn // neither is answered before the other one is there
	for i := range asked {
		if asked[i], err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		defer asked[i].Close()
	}
	for _, conn := range asked {
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a question was given up before the other one came: %v", err)
		}
		if _, err := conn.Write([]byte("\x05\x00\x00\x00\xff\x15\x04no")); err != nil { // error 1045, which ends the promotion
			t.Error(err)
		}
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "it is not known whether site west is there") {
		t.Errorf("the promotion says %v", err)
	}
}

// TestSwitchWaits: a primary that has just begun to follow is waited for, one that cannot follow is not.
func TestSwitchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewService(sitedNode{}, nil, nil)
		began := time.Now()
		if st := s.known(t.Context()); st.Known || time.Since(began) != knownWithin {
			t.Errorf("nothing is known: %+v after %v", st, time.Since(began))
		}
		time.AfterFunc(3*time.Second, func() { s.set(func(st *cluster.FollowStatus) { st.Known = true }) })
		began = time.Now()
		if st := s.known(t.Context()); !st.Known || time.Since(began) > 4*time.Second {
			t.Errorf("known after 3 s: %+v after %v", st, time.Since(began))
		}
		s.set(func(st *cluster.FollowStatus) { st.Known, st.Error = false, "denied" })
		began = time.Now()
		if st := s.known(t.Context()); st.Error == "" || time.Since(began) > 0 {
			t.Errorf("cannot follow: %+v after %v", st, time.Since(began))
		}
	})
}

// barred are the requests of a node that hears a majority, or none.
type barred struct {
	Requests
	err error
}

func (b barred) Barrier(context.Context) error { return b.err }

// TestTookOver: a request that is asked for again was carried out before only if a majority says so. A primary that
// was replaced does not know.
func TestTookOver(t *testing.T) {
	west := &cluster.OtherSite{Site: "west", Fence: true}
	for name, c := range map[string]struct {
		state cluster.State
		err   error
		says  string
	}{
		"TookOver": {cluster.State{Site: west}, nil, "was promoted, and takes writes; site west is not closed yet"},
		"Replaced": {cluster.State{Site: west}, errors.New("no majority"), "hears no majority"},
		"Never":    {cluster.State{}, errors.New("no majority"), "follows no site"},
	} {
		s := NewService(sitedNode{state: c.state, process: new(mysqld.Process)}, barred{err: c.err}, nil)
		_, err := s.siteSwitch(t.Context(), control.Request{Name: "site.switch", Args: []byte(`{"within_ns":10000000000}`)})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: switch: %v", name, err)
		}
		s = NewService(sitedNode{state: c.state}, barred{err: c.err}, nil)
		_, err = s.sitePromote(t.Context(), control.Request{Name: "site.promote", Args: []byte(`{}`)})
		if want := map[bool]string{true: primary.ErrNoMysqld.Error(), false: c.says}[name == "TookOver"]; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, mysqld does not serve: promote: %v, want %s", name, err, want)
		}
	}
}

// TestSwitchedBefore: a switch that is asked for again is answered as done, if clients can write. It was refused: an
// operator who had no answer could not tell.
func TestSwitchedBefore(t *testing.T) {
	doneBefore(t, (*Service).siteSwitch, cluster.State{Site: &cluster.OtherSite{Site: "west"}}, cluster.Cutover{Source: "west", Node: "a", Already: true})
}

// TestCutOverBefore: the same for a cutover.
func TestCutOverBefore(t *testing.T) {
	at := time.Date(2026, 11, 29, 21, 0, 0, 0, time.UTC)
	doneBefore(t, (*Service).takeOver, cluster.State{CutOver: &cluster.CutOver{Source: "db0:3306", At: at}},
		cluster.Cutover{Source: "db0:3306", Node: "a", Already: true, At: at})
}

// TestCutOverBeforeBehindBarrier: a primary that was replaced does not say that a cutover was done: its successor may follow another server.
func TestCutOverBeforeBehindBarrier(t *testing.T) {
	state := cluster.State{CutOver: &cluster.CutOver{Source: "db0:3306"}}
	s := NewService(sitedNode{state: state, process: new(mysqld.Process)}, barred{err: errors.New("no majority")}, nil)
	s.doors.Writers = mysqld.Everybody
	_, err := s.takeOver(t.Context(), control.Request{Args: []byte(`{"within_ns":10000000000}`)})
	if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeNoLeader {
		t.Errorf("a primary that hears no majority says %v", err)
	}
}

// changed are the requests of a node that keeps the changes of the cluster state, and makes none.
type changed struct {
	barred
	all *[]cluster.Change
}

func (c changed) ChangeState(_ context.Context, _ string, change cluster.Change) (operate.Done, error) {
	*c.all = append(*c.all, change)
	return operate.Done{}, errors.New("no change")
}

// TestSwitchToLaterSeries: after a switch the other site would follow MySQL 9.7 with 8.4, as site follow refuses.
// Nobody looked at the versions. A switch that left both sites closed must end, whatever their versions are.
func TestSwitchToLaterSeries(t *testing.T) {
	for _, c := range []struct {
		there, args, token string
		refused            bool
	}{
		{"9.7.1", `{"within_ns":10000000000}`, "", false},
		{"8.4.6", `{"within_ns":10000000000}`, "", true},
		{"8.4.6", `{"within_ns":10000000000,"force":true}`, "", false},
		{"8.4.6", `{"within_ns":10000000000}`, "both sites are closed", false},
	} {
		f := otherSite(t, fmt.Sprintf(`{"code":"ok","result":{"site":"west","version":%q}}`, c.there))
		f.Token = c.token
		var changes []cluster.Change
		s := NewService(sitedNode{access: f, state: cluster.State{Follow: &f}, process: new(mysqld.Process)}, changed{all: &changes}, nil)
		s.set(func(st *cluster.FollowStatus) { st.Known = true })
		_, err := s.siteSwitch(t.Context(), control.Request{Name: "site.switch", Args: []byte(c.args)})
		if refused := strings.Contains(fmt.Sprint(err), "site west, which would follow it, only 8.4.6"); refused != c.refused || (len(changes) == 0) != c.refused {
			t.Errorf("%+v: %v; %+v", c, err, changes)
		}
	}
}

// otherSite is the access to a site of one node, whose answer to each request is this one.
func otherSite(t *testing.T, answer string) cluster.Follow {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := func() string { return "8.4.0" }
	feed, err := mysqlwire.NewFeed(mysqlwire.FeedConfig{Listen: "127.0.0.1:0", ServerID: 1, ServerUUID: text, ServerVersion: text, Logger: slog.New(slog.DiscardHandler),
		Readers: &mysqlwire.ReadersConfig{
			ConnectionsMax: 1, Accounts: []mysqlwire.Reader{{User: "site", PasswordHash: mysqlwire.HashPassword("secret"), Site: true}},
			Source: noLog{}, Certificate: func() *tls.Certificate { return nil },
			Site: func(context.Context, string, net.Addr, []byte) []byte { return []byte(answer) },
		}})
	if err == nil {
		err = feed.Listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- feed.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return cluster.Follow{Site: "west", Source: feed.Addr().String(), User: "site", PasswordFile: file, Plain: true}
}

// noLog serves nothing.
type noLog struct{ mysqlwire.ReaderSource }

func doneBefore(t *testing.T, ask func(*Service, context.Context, control.Request) (operate.Done, error), state cluster.State, want cluster.Cutover) {
	t.Helper()
	for writers, code := range map[mysqld.Writers]control.Code{mysqld.Everybody: "", mysqld.Nobody: control.CodeUncertain} {
		s := NewService(sitedNode{state: state, process: new(mysqld.Process)}, barred{}, nil)
		s.doors.Writers = writers
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		d, err := ask(s, ctx, control.Request{Args: []byte(`{"within_ns":10000000000}`)})
		cancel()
		if code != "" {
			if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != code {
				t.Errorf("%v may write: %v", writers, err)
			}
			continue
		}
		if diff := cmp.Diff(want, d.Result); diff != "" || err != nil || !d.ReadOnly {
			t.Errorf("%v, %+v (-want +got):\n%s", err, d, diff)
		}
	}
}

// TestHeardBehindTakeOver: a node that starts again knows, from its disk and from the others, what the site was heard
// to have from which its own has taken over. When a promotion was asked for a second time, a new primary said that no
// loss is known.
func TestHeardBehindTakeOver(t *testing.T) {
	heard := cluster.SiteHeard{Site: "west", Term: 2, Executed: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9"}
	state := cluster.State{Site: &cluster.OtherSite{Site: "west"}}
	s := NewService(sitedNode{state: state}, nil, nil)
	s.learns(heard)
	if got := s.heardOf(s.otherSite()); got == nil || *got != heard {
		t.Errorf("%+v of west, want %+v: it is not shown to others", got, heard)
	}
	s = NewService(sitedNode{state: state, nodes: []status.Node{{Name: "b", SiteHeard: &heard}}}, nil, nil)
	if known, _ := s.knownOf(t.Context(), cluster.Follow{Site: "west"}); known.String() != heard.Executed {
		t.Errorf("%s is known of west, want what node b says: %s", known, heard.Executed)
	}
}

// TestHolesAreLost: what is missing here before later transactions of the same server is lost, although the other site
// was heard last before it had them. A promotion said that nothing was lost.
func TestHolesAreLost(t *testing.T) {
	const a, b, tag = "d9f73eef-0000-0000-0000-000000000001", "d9f73eef-0000-0000-0000-000000000002", ":tag"
	for name, c := range map[string]struct{ here, known, want string }{
		"the hole":                 {a + ":1-137657:137664", a + ":1-137650", a + ":137658-137663"},
		"several":                  {a + ":1-5:8:10-12," + b + ":1-3:5", a + ":1-6," + b + ":1-3", a + ":7:9," + b + ":4"},
		"none":                     {a + ":1-9", a + ":1-9", ""},
		"heard later":              {a + ":1-5:9", a + ":1-9", ""}, // what is known says it already
		"the other site lacks it":  {a + ":1-5:7-9:11", a + ":1-5:7-10", ""},
		"skipped, and a hole":      {a + ":1-5:7-9:12", a + ":1-5:7-9", a + ":10-11"},
		"nothing is known":         {a + ":1-5:9", "", ""},
		"another server":           {a + ":1-5:9", b + ":1-3", ""},
		"a tag is another counter": {a + ":1-5" + tag + ":7", a + ":1-5", ""},
		"our own":                  {b + ":1-5:9", b + ":1-3", ""},
	} {
		own := map[gtid.UUID]bool{}
		if name == "our own" {
			own[gtid.UUID{0xd9, 0xf7, 0x3e, 0xef, 15: 2}] = true
		}
		here, err := gtid.ParseSet(c.here)
		known, err2 := gtid.ParseSet(c.known)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if got := holes(here, known, own).String(); got != c.want {
			t.Errorf("%s: %q is lost, want %q", name, got, c.want)
		}
	}
}
