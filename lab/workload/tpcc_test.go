package workload

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/lab/peers"
)

// TestTPCCChoices: every warehouse, district, customer, item and name that is chosen exists. The other warehouse is
// another one.
func TestTPCCChoices(t *testing.T) {
	m := &terminal{tpcc: &TPCC{Warehouses: 3}, random: rand.New(rand.NewPCG(1, 1))}
	names := map[string]bool{}
	for c := 1; c <= tpccCustomers; c++ {
		names[tpccLastName(c-1)] = true
	}
	if len(names) != tpccCustomers {
		t.Errorf("%d names of %d customers", len(names), tpccCustomers)
	}
	others := map[int]int{}
	for range 20_000 {
		for name, judge := range map[string]struct{ n, high int }{
			"warehouse": {m.warehouse(), 3}, "district": {m.district(), tpccDistricts}, "customer": {m.customer(), tpccCustomers}, "item": {m.item(), tpccItems},
		} {
			if judge.n < 1 || judge.n > judge.high {
				t.Fatalf("%s %d", name, judge.n)
			}
		}
		if name := m.lastName(); !names[name] {
			t.Fatalf("nobody is called %s", name)
		}
		others[m.other(2)]++
	}
	if others[2] != 0 || others[1] < 9000 || others[3] < 9000 || len(others) != 2 {
		t.Errorf("other warehouses than 2: %v", others)
	}
	if only := (&terminal{tpcc: &TPCC{Warehouses: 1}}).other(1); only != 1 {
		t.Errorf("the other of one warehouse is %d", only)
	}
}

// TestTPCCSample: percentiles are right to a few percent. A last second that is not whole does not count as a second.
func TestTPCCSample(t *testing.T) {
	one, two := &terminal{queries: 100, errors: 1}, &terminal{queries: 50, reconnects: 2}
	for i := 1; i <= 100; i++ {
		one.count(time.Duration(i)*20*time.Millisecond, time.Duration(i)*time.Millisecond)
	}
	two.count(2500*time.Millisecond, time.Hour)
	s, err := sampleOf([]*terminal{one, two}, 2600*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if s.Transactions != 101 || s.Errors != 1 || s.Reconnects != 2 || fmt.Sprint(s.PerSecond) != "[49 50]" {
		t.Errorf("%+v", s)
	}
	for name, v := range map[string]struct{ got, want float64 }{"p50": {s.P50MS, 51}, "p95": {s.P95MS, 96}, "p99": {s.P99MS, 100}} {
		if v.got < v.want*0.97 || v.got > v.want*1.03 {
			t.Errorf("%s is %v, want about %v", name, v.got, v.want)
		}
	}
	if _, err := sampleOf([]*terminal{{}}, time.Second); err == nil {
		t.Error("nothing was done, and that is fine")
	}
}

func TestAgain(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{&mysql.MySQLError{Number: 1213}, true},
		{fmt.Errorf("COMMIT: %w", &mysql.MySQLError{Number: 3101}), true},
		{&mysql.MySQLError{Number: 1146}, false},
		{driver.ErrBadConn, true},
		{mysql.ErrInvalidConn, true},
		{errors.New("no customer"), false},
	} {
		if got := again(test.err); got != test.want {
			t.Errorf("%v: %t", test.err, got)
		}
	}
}

// tpccServer is a standalone server.
func tpccServer(t *testing.T) *peers.Deployment {
	t.Helper()
	if testing.Short() {
		t.Skip("a real server takes a while")
	}
	if os.Getenv(install.EnvBaseDir) == "" {
		abs, err := filepath.Abs("../../.mysql")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(install.EnvBaseDir, abs)
	}
	dir, err := os.MkdirTemp("", "qlab") // short: sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d, err := peers.Deploy(t.Context(), peers.Options{
		System: peers.Standalone, Network: peers.NewLoopback(78), Dir: filepath.Join(dir, "d"), Install: peers.FindInstallations("", ""),
	})
	if errors.Is(err, peers.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestTPCC: the data are consistent after a run of the mix. Each possible inconsistency is found.
func TestTPCC(t *testing.T) {
	d := tpccServer(t)
	writers, err := d.Writers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	db, err := d.Admin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	tpcc := &TPCC{Dial: peers.NewLoopback(78).DialContext(""), Warehouses: 2}
	if err := tpcc.Prepare(t.Context(), writers[0]); err != nil {
		t.Fatal(err)
	}
	s, err := tpcc.Run(t.Context(), writers, Load{Threads: 4, Duration: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if s.QPS < 5*s.TPS || s.P95MS < s.P50MS || s.ClientCPU <= 0 || tpcc.acknowledged.Load() == 0 {
		t.Errorf("%+v, %d orders", s, tpcc.acknowledged.Load())
	}
	if err := tpcc.Check(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for _, broken := range []struct{ says, by string }{
		{"condition 1", "UPDATE sbtest.district SET d_ytd = d_ytd + 0.01 WHERE d_w_id = 2 AND d_id = 3"},
		{"condition 2", "UPDATE sbtest.district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 1"},
		{"condition 3", "INSERT INTO sbtest.new_orders VALUES (1, 1, 1)"},
		{"condition 4", "DELETE FROM sbtest.order_line WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1 AND ol_number = 1"},
		{"were acknowledged", "INSERT INTO sbtest.orders VALUES (3, 1, 1, 1, NOW(), NULL, 0, 1)"},
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), broken.by); err != nil {
			t.Fatal(err)
		}
		if err := tpcc.Check(t.Context(), tx); !errors.Is(err, ErrInconsistent) || !strings.Contains(err.Error(), broken.says) {
			t.Errorf("%s: %v", broken.by, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}
