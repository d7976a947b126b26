package mysqld

import "testing"

// TestHostsZone: the rules of the host's zone are compared, not its names, and not its offset of today.
func TestHostsZone(t *testing.T) {
	s := newServer(t)
	const central = "CET-1CEST,M3.5.0,M10.5.0/3"
	look := func(tz string) Zone {
		t.Setenv("TZ", tz)
		p := start(t, s)
		defer p.Kill()
		z, err := p.Admin().Zone(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if names, err := p.Admin().LowerCaseTableNames(ctx(t)); names != 0 || err != nil {
			t.Errorf("lower_case_table_names is %d, %v", names, err)
		}
		return z
	}
	z := look(central)
	if want := (Zone{"SYSTEM", "+01:00", "+02:00", z.Rules}); z != want || z.Rules == "" {
		t.Fatalf("%s: %+v, want %+v", central, z, want)
	}
	if other := look("ONE-1TWO,M3.5.0,M10.5.0/3"); other != z {
		t.Errorf("the same rules under other names: %+v, want %+v", other, z)
	}
	if other := look("CET-1CEST,M3.4.0,M10.5.0/3"); other.Rules == z.Rules || other.January != z.January || other.July != z.July {
		t.Errorf("summer begins a week earlier: %+v, and %+v", other, z)
	}
	if west := look("WST3:30"); west.January != "-03:30" || west.July != west.January {
		t.Errorf("three hours and a half west: %+v", west)
	}
	s.cfg.Variables = map[string]string{"default_time_zone": "+02:00"}
	if fixed := look(central); fixed.Global != "+02:00" || fixed.Rules != z.Rules {
		t.Errorf("with default_time_zone: %+v", fixed)
	}
}
