package mysqld

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/mysql/install"
)

// goldenConfig is the configuration that the golden files show.
func goldenConfig(version string) (Config, error) {
	v, err := install.ParseVersion(version)
	return Config{
		Installation: &install.Installation{
			Version: v, Mysqld: "/opt/mysql/bin/mysqld", PluginDir: "/opt/mysql/lib/plugin",
			ShareDir: "/opt/mysql/share", CharsetsDir: "/opt/mysql/share/charsets",
		},
		DataDir: "/var/lib/quorate/mysql", Port: 3306, ServerID: 7,
		Secrets: testSecrets(), Logger: slog.New(slog.DiscardHandler),
	}.withDefaults(), err
}

// TestRender shows the files that mysqld is started with. Commands:
//
//	render version=… incarnation=… [root]   the option file; input: name=value lines
//	initialize version=… [root]             the option file of --initialize; the same
//	init version=… incarnation=…            the init file
//	check                                   judges name=value lines as the operator's settings
func TestRender(t *testing.T) {
	random := regexp.MustCompile(`Aa1-[0-9a-f]{32}`)
	datadriven.Walk(t, "testdata/render", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			version, n := "9.7.4", 1
			d.MaybeScanArgs(t, "version", &version)
			d.MaybeScanArgs(t, "incarnation", &n)
			c, err := goldenConfig(version)
			if err != nil {
				t.Fatal(err)
			}
			c.Variables = make(map[string]string)
			var verdicts strings.Builder
			for line := range strings.Lines(d.Input) {
				name, value, _ := strings.Cut(strings.TrimRight(line, "\n"), "=")
				c.Variables[name] = value
				fmt.Fprintf(&verdicts, "%s: %v\n", name, checkVariable(name, value))
			}
			switch d.Cmd {
			case "render":
				return c.render(uint64(n), d.HasArg("root"), StartOptions{})
			case "initialize":
				return c.renderInitialize(d.HasArg("root"))
			case "init":
				return random.ReplaceAllString(c.renderInit(uint64(n)), "(random)")
			case "check":
				return verdicts.String()
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

// TestGuardHoldsForEverySpelling: a guarded name is refused in every spelling.
func TestGuardHoldsForEverySpelling(t *testing.T) {
	var names []string
	for _, s := range guardedOfAnyVersion() {
		if s.name != "plugin_load_add" && s.excludes == nil { // judged by its value
			names = append(names, s.name)
		}
	}
	for name := range ownedOptions() {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "name")
		spelled := rapid.SampledFrom([]string{"", "loose_", "loose-", "maximum_"}).Draw(t, "prefix")
		for _, r := range name {
			if r == '_' && rapid.Bool().Draw(t, "dash") {
				r = '-'
			}
			c := string(r)
			if rapid.Bool().Draw(t, "upper") {
				c = strings.ToUpper(c)
			}
			spelled += c
		}
		if rapid.Bool().Draw(t, "old words") {
			spelled = strings.NewReplacer("replica", "slave", "source", "master").Replace(spelled)
		}
		if err := checkVariable(spelled, "1"); !errors.Is(err, ErrGuarded) {
			t.Fatalf("%s (%s): %v, want ErrGuarded", spelled, name, err)
		}
	})
}

// TestRenderedFileHasOneLinePerOption: with all values of the operator that pass validation,
// the file has exactly one line for each option.
func TestRenderedFileHasOneLinePerOption(t *testing.T) {
	base, err := goldenConfig("9.7.4")
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.Count(base.render(1, false, StartOptions{}), "\n")
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.String().Draw(t, "value")
		c := base
		c.Variables = map[string]string{"max_connections": value}
		if c.validate() != nil {
			return
		}
		text := c.render(1, false, StartOptions{})
		// A blank line, a heading and the option.
		if got := strings.Count(text, "\n"); got != plain+3 {
			t.Fatalf("%d lines, want %d:\n%s", got, plain+3, text)
		}
		if i := strings.Index(text, "\nmax_connections="); i < 0 || i > strings.Index(text, "\ngtid_mode=") {
			t.Fatalf("the operator's settings are not before the guarded ones:\n%s", text)
		}
	})
}

func TestValidateJoinsEveryFault(t *testing.T) {
	err := Config{
		DataDir: "relative", Port: 70000, Socket: "/" + strings.Repeat("s", 107),
		Variables: map[string]string{"gtid_mode": "OFF", "bad name": "1"},
	}.withDefaults().validate()
	for _, want := range []error{ErrConfig, ErrGuarded, ErrSocketPath, ErrSecrets} {
		if !errors.Is(err, want) {
			t.Errorf("validate misses %v", want)
		}
	}
	for _, want := range []string{"no installation", "no logger", "relative", "server_id", "70000", "gtid_mode", "bad name", "108 bytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("validate does not name %q:\n%v", want, err)
		}
	}
	good, err := goldenConfig("8.0.30")
	if err != nil {
		t.Fatal(err)
	}
	if err := good.validate(); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
}
