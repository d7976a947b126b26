package peers

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// instrumentOption may be given several times. In a Setting its values are separated by commas.
const instrumentOption = "performance_schema_instrument"

// instruments is the setting that every MySQL server of a deployment gets, whatever the system.
func (o Options) instruments() Setting {
	var values []string
	add := func(value string, names ...string) {
		for _, name := range names {
			values = append(values, name+"="+value)
		}
	}
	why := "the same for all MySQL systems: quorate's default. Nobody reads what is off; statements and their digests are on"
	switch o.Instruments {
	case instrumentsMySQL:
		return Setting{instrumentOption, "memory/%=ON", "the option --instruments: MySQL's default, the same for all MySQL systems"}
	case instrumentsLeast:
		why = "the option --instruments: what quorate's agents need, and nothing else; the same for all MySQL systems"
		add("OFF", "%")
	default:
		add("OFF", mysqld.InstrumentsOff()...)
	}
	add("ON", mysqld.InstrumentsKept()...)
	return Setting{instrumentOption, strings.Join(values, ","), why}
}

// ownInstruments is the same setting for quorate, which takes one value, and leaves on what its agents need. told is
// false if quorate gets no such setting.
func (o Options) ownInstruments() (value string, told bool) {
	switch o.Instruments {
	case instrumentsMySQL:
		return o.instruments().Value, true
	case instrumentsLeast:
		return "%=OFF", true
	}
	return "", false
}

// readInstruments returns an error unless two instruments are as the option says: one that quorate switches off, and one
// that is on in MySQL and quorate.
func (s *server) readInstruments(ctx context.Context, o Options) error {
	want := map[string]string{"": "YES NO", instrumentsMySQL: "YES YES", instrumentsLeast: "NO NO"}[o.Instruments]
	has, err := s.text(ctx, `SELECT GROUP_CONCAT(enabled ORDER BY name DESC SEPARATOR ' ') FROM performance_schema.setup_instruments
		WHERE name IN ('idle', 'statement/sql/insert')`)
	if err != nil {
		return err
	}
	if has != want {
		return fmt.Errorf("read instruments of node %s: they are %q, not %q", s.name, has, want)
	}
	return nil
}
