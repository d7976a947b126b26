package mysqld

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

func dump(t *testing.T, who string, db *sql.DB) {
	fmt.Fprintln(os.Stderr, who, "executed", executed(t, db))
	rows, err := db.QueryContext(ctx(t), "XA RECOVER CONVERT XID")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var f, g, b int
		var d string
		if err := rows.Scan(&f, &g, &b, &d); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(os.Stderr, who, "  recover", f, g, b, d)
	}
	if rows.Err() != nil {
		t.Error("RECOVER", rows.Err())
	}
	rows.Close()
	var s string
	_ = db.QueryRowContext(ctx(t), "select group_concat(a order by a) from d.t").Scan(&s)
	fmt.Fprintln(os.Stderr, who, "  rows", s)
}

func TestXAProbe(t *testing.T) {
	source, s, p := newPair(t)
	for _, clean := range []bool{false, true} {
		x := fmt.Sprint(clean)
		base := 0
		if clean {
			base = 1000
		}
		conn, _ := source.Conn(ctx(t))
		run := func(q string) {
			if _, err := conn.ExecContext(ctx(t), q); err != nil {
				t.Fatal(q, err)
			}
			fmt.Fprintln(os.Stderr, q, "->", executed(t, source)[36:])
		}
		ins := func(n int) string { return fmt.Sprintf("INSERT INTO d.t VALUES (%d)", base+n) }
		if !clean {
			run("CREATE DATABASE d")
			run("CREATE TABLE d.t (a INT PRIMARY KEY)")
		}
		xa := func(name string, n int, end ...string) {
			run("XA START '" + name + x + "'")
			if n > 0 {
				run(ins(n))
			}
			run("XA END '" + name + x + "'")
			for _, e := range end {
				run(fmt.Sprintf(e, name+x))
			}
		}
		run(ins(1))
		xa("pending", 10, "XA PREPARE '%s'")
		conn.Close()
		conn, _ = source.Conn(ctx(t))
		run(ins(2))
		xa("com", 11, "XA PREPARE '%s'", "XA COMMIT '%s'")
		run(ins(3))
		xa("rb", 12, "XA PREPARE '%s'", "XA ROLLBACK '%s'")
		run(ins(4))
		xa("one", 13, "XA COMMIT '%s' ONE PHASE")
		run(ins(5))
		xa("emptyC", 0, "XA PREPARE '%s'", "XA COMMIT '%s'")
		xa("emptyR", 0, "XA PREPARE '%s'", "XA ROLLBACK '%s'")
		xa("empty1", 0, "XA COMMIT '%s' ONE PHASE")
		run("XA START 'ro" + x + "'")
		run("SELECT * FROM d.t")
		run("XA END 'ro" + x + "'")
		run("XA PREPARE 'ro" + x + "'")
		run("XA COMMIT 'ro" + x + "'")
		xa("rbnp", 14, "XA ROLLBACK '%s'")
		run(ins(6))
		xa("emptypend", 0, "XA PREPARE '%s'")
		conn.Close()
		conn, _ = source.Conn(ctx(t))
		xa("tailpend", 15, "XA PREPARE '%s'")
		if err := p.Admin().WaitApplied(ctx(t), executed(t, source)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		rdb := login(t, s, DBAUser, s.cfg.Secrets.DBA)
		dump(t, "source", source)
		dump(t, "replica before", rdb)
		if clean {
			if true {
				p.StopGracefully(ctx(t))
			}
			<-p.Done()
		} else {
			p.Kill()
		}
		p = start(t, s)
		out, _ := exec.Command("sh", "-c", "tail -n 60 "+s.cfg.DataDir+"/*.err "+s.cfg.DataDir+"/*/*.log "+s.cfg.DataDir+"/*.log; ls "+s.cfg.DataDir+" "+s.cfg.DataDir+"/*|head -80").CombinedOutput()
		if !clean {
			fmt.Fprintln(os.Stderr, string(out))
		}
		_ = p.Admin().exec(ctx(t), "q", "set global read_only=0")
		for _, q := range []string{"XA COMMIT 'pending" + x + "'", "XA COMMIT 'tailpend" + x + "'"} {
			fmt.Fprintln(os.Stderr, q, p.Admin().exec(ctx(t), "q", q))
		}
		dump(t, "replica after restart clean="+x, login(t, s, DBAUser, s.cfg.Secrets.DBA))
		if !clean {
			_ = p.Admin().StopReplica(ctx(t))
			rows, _ := source.QueryContext(ctx(t), "select gtid_subtract(?,?)", executed(t, source), executed(t, login(t, s, DBAUser, s.cfg.Secrets.DBA)))
			rows.Next()
			var h string
			rows.Scan(&h)
			rows.Close()
			fmt.Fprintln(os.Stderr, "holes", oneLine(h))
			if err := p.Admin().AddPurged(ctx(t), oneLine(h)); err != nil {
				t.Fatal(err)
			}
			if err := p.Admin().StartReplica(ctx(t), "feed", feedPassword); err != nil {
				t.Fatal(err)
			}
		}
	}
}
