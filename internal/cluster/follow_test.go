package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testFollow() Follow {
	return Follow{Source: "db0:3306", User: "rep", PasswordFile: "/etc/quorate/db0"}
}

func TestFollow(t *testing.T) {
	with := func(change func(*Follow)) *Follow {
		f := testFollow()
		change(&f)
		return &f
	}
	following := testState()
	following.Follow = with(func(f *Follow) { f.By, f.Since = "op@host", change(Change{}).At })
	for name, c := range map[string]struct {
		from   State
		change FollowChange
		says   string
		err    string
	}{
		"start":          {testState(), FollowChange{Start: with(func(*Follow) {})}, "follow db0:3306 as rep", ""},
		"so already":     {following, FollowChange{Start: with(func(*Follow) {})}, "", "it is so already"},
		"another file":   {following, FollowChange{Start: with(func(f *Follow) { f.PasswordFile = "/b" })}, "follow db0:3306 as rep", ""},
		"another source": {following, FollowChange{Start: with(func(f *Follow) { f.Source = "db9:3306" })}, "", "the cluster follows db0:3306 as rep: end that first"},
		"stop":           {following, FollowChange{}, "follow --stop", ""},
		"cutover":        {following, FollowChange{Cutover: true}, "cutover", ""},
		"nobody":         {testState(), FollowChange{}, "", "it is so already"},
		"no port":        {testState(), FollowChange{Start: with(func(f *Follow) { f.Source = "db0" })}, "", `source "db0" is not a host:port`},
		"no account":     {testState(), FollowChange{Start: with(func(f *Follow) { f.User = "" })}, "", "the account at the source must be named"},
		"a line break":   {testState(), FollowChange{Start: with(func(f *Follow) { f.User = "a\nb" })}, "", "the account at the source must be named"},
		"a relative":     {testState(), FollowChange{Start: with(func(f *Follow) { f.PasswordFile = "x" })}, "", `password file "x" is not an absolute path`},
		"no password":    {testState(), FollowChange{Start: with(func(f *Follow) { f.PasswordFile = "" })}, "", "the file with the account's password must be named: --password-file"},
		"a relative CA":  {testState(), FollowChange{Start: with(func(f *Follow) { f.CAFile = "x" })}, "", `CA file "x" is not an absolute path`},
		"a CA for none":  {testState(), FollowChange{Start: with(func(f *Follow) { f.CAFile, f.Plain = "/x", true })}, "", "a CA file is for TLS, which is off"},
	} {
		t.Run(name, func(t *testing.T) {
			before, full := c.from.Clone(), change(Change{Follow: &c.change})
			got, err := c.from.With(full)
			if diff := cmp.Diff(before, c.from); diff != "" {
				t.Errorf("the state of before has changed (-want +got):\n%s", diff)
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if full.String() != c.says || !strings.HasSuffix(full.Done(got), ".") {
				t.Errorf("it says %q, and %q", full, full.Done(got))
			}
			want := c.change.Start
			if want != nil {
				f := *want
				f.By, f.Since = full.By, full.At
				if c.from.Follow != nil {
					f.By, f.Since = c.from.Follow.By, c.from.Follow.Since
				}
				want = &f
			}
			if diff := cmp.Diff(want, got.Follow); diff != "" {
				t.Errorf("followed is (-want +got):\n%s", diff)
			}
			if cut := c.change.Cutover; (full.Format() == 9) != cut || (got.CutOver != nil) != cut || (got.Format() == 9) != cut || want != nil && got.Format() != 7 {
				t.Errorf("formats %d and %d", full.Format(), got.Format())
			}
		})
	}
}

// TestClosing: a cutover that was called off no longer takes over. It is over only when its source is open
// again.
func TestClosing(t *testing.T) {
	state := testState()
	f := testFollow()
	state.Follow = &f
	step := func(c FollowChange) error {
		full := change(Change{Follow: &c})
		next, err := state.With(full)
		if err == nil {
			if full.String() == "" || !strings.HasSuffix(full.Done(next), ".") || (c.closing() || c.Cutover) != (full.Format() == 9) || (next.Closing != nil || next.CutOver != nil) != (next.Format() == 9) {
				t.Errorf("it says %q and %q, formats %d and %d", full, full.Done(next), full.Format(), next.Format())
			}
			state = next
		}
		return err
	}
	must := func(c FollowChange) {
		t.Helper()
		if err := step(c); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(c FollowChange, want string) {
		t.Helper()
		if err := step(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	first := FollowChange{Close: &Closing{ServerUUID: "one", ReadOnly: true}}
	refused(FollowChange{CallOff: true}, "it is so already")
	refused(FollowChange{Opened: true}, "it is so already")
	refused(FollowChange{Close: &Closing{}}, "name the server")
	must(first)
	if c := state.Closing; c.By == "" || c.Since.IsZero() || !c.ReadOnly || c.CalledOff {
		t.Errorf("%+v", c)
	}
	refused(FollowChange{Opened: true}, "it may take over")
	must(FollowChange{CallOff: true})
	refused(FollowChange{CallOff: true}, "it is so already")
	refused(FollowChange{Cutover: true}, "was called off")
	must(first) // another cutover, before the source is open
	must(FollowChange{CallOff: true})
	must(FollowChange{Opened: true})
	must(first)
	must(FollowChange{Cutover: true})
	if state.Follow != nil || state.Closing != nil {
		t.Errorf("after a cutover: %+v, %+v", state.Follow, state.Closing)
	}
	refused(first, "follows nobody")
	if was := state.CutOver; was == nil || was.Source != f.Source || was.By == "" || was.At.IsZero() {
		t.Errorf("%+v", was)
	}
	must(FollowChange{Start: &Follow{Source: "db9:3306", User: "rep", PasswordFile: "/p"}})
	if state.CutOver != nil {
		t.Errorf("while another server is followed: %+v", state.CutOver)
	}
	must(FollowChange{})
	if state.CutOver != nil {
		t.Errorf("after following without a cutover: %+v", state.CutOver)
	}
}

func TestFollowIsCopied(t *testing.T) {
	following := testState()
	following.Follow, following.Closing = new(testFollow()), &Closing{ServerUUID: "one"}
	copied := following.Clone()
	copied.Follow.User, copied.Closing.ServerUUID = "other", "two"
	if following.Follow.User != "rep" || following.Closing.ServerUUID != "one" {
		t.Error("a clone shares what is followed")
	}
}

func TestFollowStatus(t *testing.T) {
	for want, s := range map[string]FollowStatus{
		"begins to follow":                   {},
		"has all that the source has":        {Known: true},
		"12 transactions left, 1.5 s behind": {Known: true, Left: 12, Seconds: 1.5},
		"does not follow: purged":            {Known: true, Left: 12, Error: "purged"},
	} {
		if s.String() != want {
			t.Errorf("%+v says %q, want %q", s, s, want)
		}
	}
	if got := Failed([]Check{{Subject: "a", State: CheckOK}, {Subject: "b", State: CheckFail}, {Subject: "c", State: CheckWarn}}); !cmp.Equal(got, []string{"b"}) {
		t.Errorf("%q speaks against it", got)
	}
}
