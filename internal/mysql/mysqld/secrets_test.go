package mysqld

import (
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
)

// TestRotateSecrets: rotated passwords are valid from the server's next start on, the old ones
// until then.
func TestRotateSecrets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secrets.toml")
	load := func() Secrets {
		t.Helper()
		if err := AdoptSecrets(vfs.OS{}, path); err != nil {
			t.Fatal(err)
		}
		s, err := LoadSecrets(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	old, err := GenerateSecrets(vfs.OS{}, path)
	if err != nil || load() != old {
		t.Fatalf("nothing was rotated, and the passwords changed: %v", err)
	}
	s := newServer(t, func(c *Config) { c.Secrets = old })
	p := start(t, s)
	for range 2 { // the second time before the first one was used
		if err := RotateSecrets(vfs.OS{}, path); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := LoadSecrets(path); err != nil || now != old {
		t.Errorf("the passwords changed while a server has the old ones: %v", err)
	}
	mustExec(t, login(t, s, DBAUser, old.DBA), "DO 0")
	p.Kill()
	rotated := load()
	if rotated.Admin == old.Admin || rotated.Tap == old.Tap || rotated.DBA == old.DBA || load() != rotated {
		t.Error("a password is the same as before, or the next start has others")
	}
	s.cfg.Secrets = rotated
	p = start(t, s)
	for user, passwords := range map[string][2]string{
		DBAUser: {old.DBA, rotated.DBA}, AdminUser: {old.Admin, rotated.Admin}, TapUser: {old.Tap, rotated.Tap}, CloneUser: {old.Clone(), rotated.Clone()},
		RouterUser: {old.Router(), rotated.Router()}, FollowUser: {old.Follow(), rotated.Follow()},
	} {
		if err := login(t, s, user, passwords[0]).PingContext(ctx(t)); err == nil {
			t.Errorf("%s comes in with the old password", user)
		}
		if err := login(t, s, user, passwords[1]).PingContext(ctx(t)); err != nil {
			t.Errorf("%s does not come in with the new password: %v", user, err)
		}
	}
	if set, err := p.Admin().GTIDExecuted(ctx(t)); err != nil || set != "" {
		t.Errorf("the rotation left GTIDs: %q, %v", set, err)
	}
}
