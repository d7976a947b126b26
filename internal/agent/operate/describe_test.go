package operate

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/front/control"
)

func TestDescribe(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"node.set", `{"name":"b","weight":7}`, "node b: weight 7"},
		{"cluster.set", `{"durability":"all"}`, "durability all"},
		{"maintenance", `{"on":true,"reason":"disks"}`, "maintenance on: disks"},
		{"maintenance", `{"on":false}`, "maintenance off"},
		{"switchover", `{"max_pause_ns":2000000000,"wait_ns":0}`, "switchover to the best node"},
		{"switchover", `{"to":"b"}`, "switchover to b"},
		{"restart", `{"node":"zz","max_pause_ns":2000000000}`, "restart mysqld of zz"},
		{"restart", `{"node":"zz","in_place":true}`, "restart mysqld of zz in place"},
		{"fence", `{"node":"zz"}`, "fence node zz"},
		{"fence", `{"node":"b","reason":"its disk"}`, "fence node b: its disk"},
		{"unfence", `{"node":"zz"}`, "unfence node zz"},
		{"node.add", `{"change":{"op":"add","name":"d","kind":"full","peer":"nohost"}}`, "add full node d at nohost"},
		{"node.add", `{"change":{"op":"add","name":"d","peer":"h:1","key":"q1:x"}}`, "add node d at h:1, key q1:x"},
		{"node.remove", `{"change":{"op":"remove","name":"zz"},"dry_run":true}`, "remove node zz"},
		{"log.purge", `{}`, "purge the log"},
		{"log.purge", `{"retention_size":0}`, "purge the log, but for 0B"},
		{"log.purge", `{"retention_size":0,"up_to":9}`, "purge the log up to entry 9, but for 0B"},
		{"node.set", `x`, "node set"},
		{"follow.start", `{"source":"db9:3306","user":"copy","password_file":"/p","check":true}`, "follow db9:3306 as copy"},
		{"follow.start", `x`, "follow"},
		{"follow.stop", `{}`, "follow --stop"},
		{"cutover", `{"within_ns":30000000000}`, "cutover"},
		{"site.follow", `{"check":false}`, "site follow"},
		{"site.switch", `{"within_ns":30000000000}`, "site switch"},
		{"site.promote", `{"yes":true}`, "site promote"},
		{"site.forget", `{}`, "site forget"},
		{"secrets.rotate", `{}`, "secrets rotate"},
	} {
		if got := describe(control.Request{Name: c.name, Args: []byte(c.args)}); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.name, c.args, got, c.want)
		}
	}
	long := describe(control.Request{Name: "fence", Args: []byte(`{"reason":"` + strings.Repeat("x", 9000) + `"}`)})
	if len(long) > auditTextBytesMax {
		t.Errorf("%d bytes", len(long))
	}
}
