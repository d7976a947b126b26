package status

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

// TestBoundedStatus: a status in which every text is as long as it can be is short enough for a peer. A status
// of usual length is sent unchanged.
func TestBoundedStatus(t *testing.T) {
	usual := Node{ID: 1, Name: "a", GTIDExecuted: "01010101-0101-0101-0101-010101010101:1-5", Reason: "no leader"}
	if diff := cmp.Diff(usual, usual.Bounded()); diff != "" {
		t.Errorf("a usual status is changed (-want +got):\n%s", diff)
	}
	// These texts come from the configuration or from quorate itself, and are short.
	short := []string{
		"Name", "Kind", "Peer", "Site", "RequireAck", "Source", "FedBy", "Instance", "Role", "LogState", "Mysqld", "ServerVersion",
		"ServerUUID", "Router", "ReadOnly", "MysqldPort", "MySQLRouter", "AgentVersion", "Follow", "Unreached", "Key", "ClientCA",
	}
	long := usual
	v := reflect.ValueOf(&long).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String && !slices.Contains(short, v.Type().Field(i).Name) {
			f.SetString(strings.Repeat("<é", 1<<20))
		}
	}
	long.SiteHeard = &cluster.SiteHeard{Executed: strings.Repeat("0", statusTextBytesMax)}
	bounded := long.Bounded()
	b, err := json.Marshal(bounded)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 1<<20 {
		t.Errorf("a status has %d bytes, more than a peer takes", len(b))
	}
	long.SiteHeard = &cluster.SiteHeard{Executed: strings.Repeat("0", statusTextBytesMax+1)}
	if bounded.SiteHeard == nil || long.Bounded().SiteHeard != nil {
		t.Error("what a site was heard to have is sent in part, or not at all")
	}
	if !strings.HasSuffix(bounded.Errant, "(cut: all of it has 3145728 bytes)") || len(bounded.Errant) > statusTextBytesMax {
		t.Errorf("a text of %d bytes does not say that it was cut: %q", len(bounded.Errant), bounded.Errant[len(bounded.Errant)-60:])
	}
}
