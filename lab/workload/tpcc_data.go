package workload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/lab/peers"
)

// tpccTables are the tables of sysbench-tpcc, without its foreign keys. history has a primary key, because groups
// require one.
func tpccTables() []string {
	dist := ""
	for d := 1; d <= tpccDistricts; d++ {
		dist += fmt.Sprintf("s_dist_%02d CHAR(24) NOT NULL, ", d)
	}
	return []string{
		`warehouse (w_id INT PRIMARY KEY, w_name VARCHAR(10) NOT NULL, w_tax DECIMAL(4,4) NOT NULL, w_ytd DECIMAL(12,2) NOT NULL)`,
		`district (d_w_id INT, d_id TINYINT, d_name VARCHAR(10) NOT NULL, d_tax DECIMAL(4,4) NOT NULL, d_ytd DECIMAL(12,2) NOT NULL,
			d_next_o_id INT NOT NULL, PRIMARY KEY (d_w_id, d_id))`,
		`customer (c_w_id INT, c_d_id TINYINT, c_id INT, c_first VARCHAR(16) NOT NULL, c_last VARCHAR(16) NOT NULL, c_credit CHAR(2) NOT NULL,
			c_discount DECIMAL(4,4) NOT NULL, c_balance DECIMAL(12,2) NOT NULL, c_ytd_payment DECIMAL(12,2) NOT NULL, c_payment_cnt INT NOT NULL,
			c_delivery_cnt INT NOT NULL, c_data VARCHAR(500) NOT NULL, PRIMARY KEY (c_w_id, c_d_id, c_id), KEY (c_w_id, c_d_id, c_last, c_first))`,
		`history (h_id BIGINT PRIMARY KEY AUTO_INCREMENT, h_c_w_id INT NOT NULL, h_c_d_id TINYINT NOT NULL, h_c_id INT NOT NULL, h_w_id INT NOT NULL,
			h_d_id TINYINT NOT NULL, h_date DATETIME NOT NULL, h_amount DECIMAL(6,2) NOT NULL, h_data VARCHAR(24) NOT NULL,
			KEY (h_c_w_id, h_c_d_id, h_c_id), KEY (h_w_id, h_d_id))`,
		`new_orders (no_w_id INT, no_d_id TINYINT, no_o_id INT, PRIMARY KEY (no_w_id, no_d_id, no_o_id))`,
		`orders (o_w_id INT, o_d_id TINYINT, o_id INT, o_c_id INT NOT NULL, o_entry_d DATETIME NOT NULL, o_carrier_id TINYINT, o_ol_cnt TINYINT NOT NULL,
			o_all_local TINYINT NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id), KEY (o_w_id, o_d_id, o_c_id, o_id))`,
		`order_line (ol_w_id INT, ol_d_id TINYINT, ol_o_id INT, ol_number TINYINT, ol_i_id INT NOT NULL, ol_supply_w_id INT NOT NULL,
			ol_delivery_d DATETIME, ol_quantity TINYINT NOT NULL, ol_amount DECIMAL(6,2) NOT NULL, ol_dist_info CHAR(24) NOT NULL,
			PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number), KEY (ol_supply_w_id, ol_i_id))`,
		`item (i_id INT PRIMARY KEY, i_name VARCHAR(24) NOT NULL, i_price DECIMAL(5,2) NOT NULL, i_data VARCHAR(50) NOT NULL)`,
		`stock (s_w_id INT, s_i_id INT, s_quantity SMALLINT NOT NULL, ` + dist + `s_ytd DECIMAL(8,0) NOT NULL, s_order_cnt SMALLINT NOT NULL,
			s_remote_cnt SMALLINT NOT NULL, s_data VARCHAR(50) NOT NULL, PRIMARY KEY (s_w_id, s_i_id), KEY (s_i_id))`,
	}
}

// Prepare makes and fills the tables through one endpoint.
func (t *TPCC) Prepare(ctx context.Context, at peers.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, prepareWait)
	defer cancel()
	db, err := Open(t.Dial, at)
	if err != nil {
		return err
	}
	defer db.Close() // nothing to lose
	for _, table := range tpccTables() {
		if _, err := db.ExecContext(ctx, "CREATE TABLE "+table+" ENGINE=InnoDB"); err != nil {
			return fmt.Errorf("create table %s: %w", strings.Fields(table)[0], err)
		}
	}
	filling, ctx := errgroup.WithContext(ctx)
	filling.SetLimit(prepareThreads)
	for w := range t.Warehouses + 1 { // 0 fills the items, which all warehouses share
		filling.Go(func() error {
			l := &loader{db: db, random: rand.New(rand.NewPCG(2, uint64(w)))}
			if w == 0 {
				l.items(ctx)
			} else {
				l.warehouse(ctx, w)
			}
			l.flush(ctx)
			return l.err
		})
	}
	if err := filling.Wait(); err != nil {
		return fmt.Errorf("fill tables of %s: %w", TPCCName, err)
	}
	return nil
}

// rowsAtOnce are the rows of one INSERT.
const rowsAtOnce = 500

// loader inserts rows, many at a time. After its first error, which it keeps, it does nothing more.
type loader struct {
	db     *sql.DB
	random *rand.Rand
	table  string
	rows   []string
	err    error
}

// add adds a row: its values as SQL has them.
func (l *loader) add(ctx context.Context, table, format string, args ...any) {
	if table != l.table || len(l.rows) == rowsAtOnce {
		l.flush(ctx)
		l.table = table
	}
	l.rows = append(l.rows, "("+fmt.Sprintf(format, args...)+")")
}

func (l *loader) flush(ctx context.Context) {
	if len(l.rows) > 0 && l.err == nil {
		if _, err := l.db.ExecContext(ctx, "INSERT INTO "+l.table+" VALUES "+strings.Join(l.rows, ",")); err != nil {
			l.err = fmt.Errorf("insert into %s: %w", l.table, err)
		}
	}
	l.rows = l.rows[:0]
}

// letters returns n random letters.
func (l *loader) letters(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + l.random.IntN(26))
	}
	return string(b)
}

// tax is a random rate of up to 0.2.
func (l *loader) tax() float64 { return float64(l.random.IntN(2001)) / 10_000 }

func (l *loader) items(ctx context.Context) {
	for i := 1; i <= tpccItems; i++ {
		l.add(ctx, "item", "%d, '%s', %.2f, '%s'", i, l.letters(20), 1+float64(l.random.IntN(9901))/100, l.letters(40))
	}
}

func (l *loader) warehouse(ctx context.Context, w int) {
	l.add(ctx, "warehouse", "%d, '%s', %.4f, 300000", w, l.letters(8), l.tax())
	for i := 1; i <= tpccItems; i++ {
		dist := ""
		for range tpccDistricts {
			dist += "'" + l.letters(24) + "', "
		}
		l.add(ctx, "stock", "%d, %d, %d, %s0, 0, 0, '%s'", w, i, 10+l.random.IntN(91), dist, l.letters(40))
	}
	for d := 1; d <= tpccDistricts; d++ {
		l.district(ctx, w, d)
	}
}

func (l *loader) district(ctx context.Context, w, d int) {
	const paid = 10 // by each customer, before
	l.add(ctx, "district", "%d, %d, '%s', %.4f, 30000, %d", w, d, l.letters(8), l.tax(), tpccCustomers+1)
	for c := 1; c <= tpccCustomers; c++ {
		credit := "GC"
		if l.random.IntN(10) == 0 {
			credit = "BC"
		}
		l.add(ctx, "customer", "%d, %d, %d, '%s', '%s', '%s', %.4f, %d, %d, 1, 0, '%s'", w, d, c, l.letters(12), tpccLastName(c-1), credit,
			float64(l.random.IntN(5001))/10_000, -paid, paid, l.letters(400))
	}
	for c := 1; c <= tpccCustomers; c++ {
		l.add(ctx, "history (h_c_w_id, h_c_d_id, h_c_id, h_w_id, h_d_id, h_date, h_amount, h_data)", "%d, %d, %d, %d, %d, NOW(), %d, '%s'", w, d, c, w, d, paid, l.letters(20))
	}
	counts := make([]int, tpccCustomers)
	for i, c := range l.random.Perm(tpccCustomers) {
		counts[i] = tpccLinesMin + l.random.IntN(tpccLinesMax-tpccLinesMin+1)
		carrier := fmt.Sprint(1 + l.random.IntN(10))
		if i >= tpccCustomers-tpccOpen {
			carrier = "NULL"
		}
		l.add(ctx, "orders", "%d, %d, %d, %d, NOW(), %s, %d, 1", w, d, i+1, c+1, carrier, counts[i])
	}
	for i := tpccCustomers - tpccOpen; i < tpccCustomers; i++ {
		l.add(ctx, "new_orders", "%d, %d, %d", w, d, i+1)
	}
	for i, lines := range counts {
		for n := 1; n <= lines; n++ {
			delivered, amount := "NOW()", 0.0
			if i >= tpccCustomers-tpccOpen {
				delivered, amount = "NULL", float64(1+l.random.IntN(999_999))/100
			}
			l.add(ctx, "order_line", "%d, %d, %d, %d, %d, %d, %s, 5, %.2f, '%s'", w, d, i+1, n, 1+l.random.IntN(tpccItems), w, delivered, amount, l.letters(24))
		}
	}
}

// Rows is a pool, or a transaction.
type Rows interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// ErrInconsistent: a server's tables are not what the standard's conditions ask for, or not what clients were told.
var ErrInconsistent = errors.New("the tables of tpcc are inconsistent")

// Check checks one server that has caught up: the consistency conditions 1 to 4 of the standard (3.3.2.1 to 3.3.2.4),
// and that it has every order that was acknowledged, and no order that no client sent.
func (t *TPCC) Check(ctx context.Context, db Rows) error {
	const in = peers.Database + "."
	for _, condition := range []struct{ name, query string }{
		{"1: a warehouse has been paid what its districts have been", `SELECT COUNT(*) FROM ` + in + `warehouse WHERE w_ytd <>
			(SELECT SUM(d_ytd) FROM ` + in + `district WHERE d_w_id = w_id)`},
		{"2: a district's next order follows its last one", `SELECT COUNT(*) FROM ` + in + `district WHERE
			d_next_o_id - 1 <> (SELECT MAX(o_id) FROM ` + in + `orders WHERE o_w_id = d_w_id AND o_d_id = d_id)
			OR d_next_o_id - 1 <> (SELECT MAX(no_o_id) FROM ` + in + `new_orders WHERE no_w_id = d_w_id AND no_d_id = d_id)`},
		{"3: open orders have no gaps", `SELECT COUNT(*) FROM (SELECT 1 FROM ` + in + `new_orders GROUP BY no_w_id, no_d_id
			HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*)) x`},
		{"4: a district's orders have their lines", `SELECT COUNT(*) FROM ` + in + `district WHERE
			(SELECT SUM(o_ol_cnt) FROM ` + in + `orders WHERE o_w_id = d_w_id AND o_d_id = d_id) <>
			(SELECT COUNT(*) FROM ` + in + `order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)`},
	} {
		var bad int
		if err := db.QueryRowContext(ctx, condition.query).Scan(&bad); err != nil {
			return fmt.Errorf("check condition %s: %w", condition.name, err)
		}
		if bad > 0 {
			return fmt.Errorf("%w: not true of %d: condition %s", ErrInconsistent, bad, condition.name)
		}
	}
	var orders int64
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+in+"orders").Scan(&orders); err != nil {
		return fmt.Errorf("count orders: %w", err)
	}
	orders -= int64(t.Warehouses) * tpccDistricts * tpccCustomers
	acknowledged, unknown := t.acknowledged.Load(), t.unknown.Load()
	if orders < acknowledged || orders > acknowledged+unknown {
		return fmt.Errorf("%w: %d new orders; %d were acknowledged, of %d it is not known", ErrInconsistent, orders, acknowledged, unknown)
	}
	return nil
}
