package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/testkit/ledger"
)

// newOrder is clause 2.4: an order of 5 to 15 items. One of a hundred names an item that does not exist, and is rolled
// back.
func (m *terminal) newOrder(ctx context.Context) error {
	w, d, c := m.warehouse(), m.district(), m.customer()
	lines, invalid := m.between(tpccLinesMin, tpccLinesMax), m.between(1, 100) == 1
	var discount, warehouseTax, districtTax float64
	var order int
	if err := m.row(ctx, `SELECT c_discount, w_tax FROM customer, warehouse WHERE w_id = ? AND c_w_id = w_id AND c_d_id = ? AND c_id = ?`,
		[]any{w, d, c}, &discount, &warehouseTax); err != nil {
		return err
	}
	if err := m.row(ctx, "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ? FOR UPDATE", []any{w, d}, &order, &districtTax); err != nil {
		return err
	}
	items, suppliers, local := make([]int, lines), make([]int, lines), 1
	for i := range items {
		items[i], suppliers[i] = m.item(), w
		if m.between(1, 100) == 1 && m.tpcc.Warehouses > 1 {
			suppliers[i], local = m.other(w), 0
		}
	}
	if invalid {
		items[lines-1] = tpccItems + 1
	}
	for _, s := range []struct {
		query string
		args  []any
	}{
		{"UPDATE district SET d_next_o_id = ? WHERE d_w_id = ? AND d_id = ?", []any{order + 1, w, d}},
		{"INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) VALUES (?, ?, ?, ?, NOW(), ?, ?)", []any{order, d, w, c, lines, local}},
		{"INSERT INTO new_orders (no_o_id, no_d_id, no_w_id) VALUES (?, ?, ?)", []any{order, d, w}},
	} {
		if err := m.exec(ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	for i, item := range items {
		if item > tpccItems {
			return m.missing(ctx, item)
		}
		if err := m.orderLine(ctx, w, d, order, i+1, item, suppliers[i]); err != nil {
			return err
		}
	}
	return m.commitOrder(ctx)
}

// missing looks for an item that does not exist.
func (m *terminal) missing(ctx context.Context, item int) error {
	found, err := m.ints(ctx, "SELECT i_id FROM item WHERE i_id = ?", item)
	if err == nil && len(found) > 0 {
		return fmt.Errorf("item %d exists", item)
	}
	return errors.Join(err, errAborted)
}

func (m *terminal) orderLine(ctx context.Context, w, d, order, number, item, supplier int) error {
	quantity := m.between(1, 10)
	var price float64
	var stock int
	var info string
	if err := m.row(ctx, "SELECT i_price FROM item WHERE i_id = ?", []any{item}, &price); err != nil {
		return err
	}
	query := fmt.Sprintf("SELECT s_quantity, s_dist_%02d FROM stock WHERE s_i_id = ? AND s_w_id = ? FOR UPDATE", d)
	if err := m.row(ctx, query, []any{item, supplier}, &stock, &info); err != nil {
		return err
	}
	if stock -= quantity; stock < 10 {
		stock += 91
	}
	remote := 0
	if supplier != w {
		remote = 1
	}
	if err := m.exec(ctx, "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ? WHERE s_i_id = ? AND s_w_id = ?",
		stock, quantity, remote, item, supplier); err != nil {
		return err
	}
	return m.exec(ctx, `INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, order, d, w, number, item, supplier, quantity, price*float64(quantity), info)
}

// commitOrder counts what the client knows of the order.
func (m *terminal) commitOrder(ctx context.Context) error {
	err := m.commit(ctx)
	switch ledger.OutcomeOf(err) {
	case ledger.Acknowledged:
		m.tpcc.acknowledged.Add(1)
	case ledger.Unknown:
		m.tpcc.unknown.Add(1)
	}
	return err
}

// customerOf chooses the customer of a payment or of a question about orders. 60 of 100 are chosen by name: the middle
// one of the customers with that name.
func (m *terminal) customerOf(ctx context.Context, w, d int) (int, error) {
	if m.between(1, 100) > 60 {
		return m.customer(), nil
	}
	name := m.lastName()
	all, err := m.ints(ctx, "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first", w, d, name)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no customer %s in district %d of warehouse %d", name, d, w)
	}
	if err != nil {
		return 0, err
	}
	return all[len(all)/2], nil
}

// payment is clause 2.5; 15 of 100 customers belong to another warehouse.
func (m *terminal) payment(ctx context.Context) error {
	w, d := m.warehouse(), m.district()
	cw, cd := w, d
	if m.between(1, 100) > 85 {
		cw, cd = m.other(w), m.district()
	}
	amount := float64(m.between(100, 500_000)) / 100
	var warehouseName, districtName, credit string
	if err := m.exec(ctx, "UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?", amount, w); err != nil {
		return err
	}
	if err := m.row(ctx, "SELECT w_name FROM warehouse WHERE w_id = ?", []any{w}, &warehouseName); err != nil {
		return err
	}
	if err := m.exec(ctx, "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?", amount, w, d); err != nil {
		return err
	}
	if err := m.row(ctx, "SELECT d_name FROM district WHERE d_w_id = ? AND d_id = ?", []any{w, d}, &districtName); err != nil {
		return err
	}
	c, err := m.customerOf(ctx, cw, cd)
	if err != nil {
		return err
	}
	if err := m.row(ctx, "SELECT c_credit FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE", []any{cw, cd, c}, &credit); err != nil {
		return err
	}
	note := ""
	if credit == "BC" {
		note = fmt.Sprintf("%d %d %d %d %d %.2f %s|", c, cd, cw, d, w, amount, time.Now().Format(time.DateTime))
	}
	if err := m.exec(ctx, `UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, c_payment_cnt = c_payment_cnt + 1,
		c_data = LEFT(CONCAT(?, c_data), 500) WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?`, amount, amount, note, cw, cd, c); err != nil {
		return err
	}
	if err := m.exec(ctx, "INSERT INTO history (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, h_amount, h_data) VALUES (?, ?, ?, ?, ?, NOW(), ?, ?)",
		cd, cw, c, d, w, amount, warehouseName+"    "+districtName); err != nil {
		return err
	}
	return m.commit(ctx)
}

// orderStatus is clause 2.6: a customer's last order.
func (m *terminal) orderStatus(ctx context.Context) error {
	w, d := m.warehouse(), m.district()
	c, err := m.customerOf(ctx, w, d)
	if err != nil {
		return err
	}
	var balance float64
	if err := m.row(ctx, "SELECT c_balance FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?", []any{w, d, c}, &balance); err != nil {
		return err
	}
	var order int
	if err := m.row(ctx, "SELECT o_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1", []any{w, d, c}, &order); err != nil {
		return err
	}
	if _, err := m.ints(ctx, "SELECT ol_i_id FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?", w, d, order); err != nil {
		return err
	}
	return m.commit(ctx)
}

// delivery is clause 2.7: the oldest open order of each district of a warehouse.
func (m *terminal) delivery(ctx context.Context) error {
	w, carrier := m.warehouse(), m.between(1, 10)
	for d := 1; d <= tpccDistricts; d++ {
		open, err := m.ints(ctx, "SELECT no_o_id FROM new_orders WHERE no_w_id = ? AND no_d_id = ? ORDER BY no_o_id LIMIT 1 FOR UPDATE", w, d)
		if err != nil {
			return err
		}
		if len(open) == 0 {
			continue
		}
		if err := m.deliver(ctx, w, d, open[0], carrier); err != nil {
			return err
		}
	}
	return m.commit(ctx)
}

func (m *terminal) deliver(ctx context.Context, w, d, order, carrier int) error {
	var c int
	var amount float64
	if err := m.exec(ctx, "DELETE FROM new_orders WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?", w, d, order); err != nil {
		return err
	}
	if err := m.row(ctx, "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?", []any{w, d, order}, &c); err != nil {
		return err
	}
	if err := m.exec(ctx, "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?", carrier, w, d, order); err != nil {
		return err
	}
	if err := m.exec(ctx, "UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?", w, d, order); err != nil {
		return err
	}
	if err := m.row(ctx, "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?", []any{w, d, order}, &amount); err != nil {
		return err
	}
	return m.exec(ctx, "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?", amount, w, d, c)
}

// stockLevel is clause 2.8: how many items of a district's last 20 orders are scarce.
func (m *terminal) stockLevel(ctx context.Context) error {
	w, d, threshold := m.warehouse(), m.district(), m.between(10, 20)
	var next, scarce int
	if err := m.row(ctx, "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?", []any{w, d}, &next); err != nil {
		return err
	}
	if err := m.row(ctx, `SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id < ? AND ol_o_id >= ?
		AND s_w_id = ? AND s_i_id = ol_i_id AND s_quantity < ?`, []any{w, d, next, next - 20, w, threshold}, &scarce); err != nil {
		return err
	}
	return m.commit(ctx)
}
