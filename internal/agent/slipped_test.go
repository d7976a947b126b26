package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/gtid"
)

// TestSlipped: what a former primary committed beside the log ends it before it is
// written down for good.
func TestSlipped(t *testing.T) {
	const uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	for _, c := range []struct {
		pending             bool
		executed, committed string
		want                string
	}{
		{false, uuid + ":1-5", uuid + ":1-5", ""},
		{false, uuid + ":1-4", uuid + ":1-5", ""},
		{false, uuid + ":1-6", uuid + ":1-5", uuid + ":6"},
		{true, uuid + ":1-5", uuid + ":1-5", "under way"},
	} {
		executed, err := gtid.ParseSet(c.executed)
		if err != nil {
			t.Fatal(err)
		}
		committed, err := gtid.ParseSet(c.committed)
		if err != nil {
			t.Fatal(err)
		}
		err = slipped(c.pending, executed, committed)
		if (c.want == "") != (err == nil) || err != nil && (!errors.Is(err, errSlipped) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
