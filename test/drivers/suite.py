"""PyMySQL through quorate's ports: prints "ok NAME" or "FAIL NAME why" for each case."""

import os
import ssl
import sys
import tempfile
import time
import urllib.request

import pymysql

# At MySQL Router's split port clients use TLS, and give up a connection soon; reads may be a replica's.
SPLIT = "SPLIT" in os.environ
HOSTS = {port: [a.rsplit(":", 1) for a in os.environ[port].split(",")] for port in ("WRITE", "READ")}


def unverified():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


# At the split port a session begins with a read (docs/router.md).
OPTIONS = {"ssl": unverified(), "init_command": "SELECT 1"} if SPLIT else {"ssl_disabled": True}


def connect(port, first=0, **more):
    """The loop over hosts is the application's: PyMySQL takes one host."""
    error = None
    hosts = HOSTS[port]
    for host, number in hosts[first:] + hosts[:first]:
        try:
            return pymysql.connect(
                **{
                    "host": host, "port": int(number), "user": os.environ["DB_USER"], "password": os.environ["DB_PASSWORD"],
                    "database": "drivers", "charset": "utf8mb4", "connect_timeout": 2 if SPLIT else 40, "read_timeout": 60,
                    "write_timeout": 60, **OPTIONS, **more,
                }
            )
        except pymysql.err.OperationalError as e:
            if e.args[0] == 1045:
                raise
            error = e
    raise error


def one(conn, sql, *args):
    with conn.cursor() as c:
        c.execute(sql, args)
        return c.fetchone()[0]


def fails(code, run):
    try:
        run()
    except pymysql.MySQLError as e:
        assert e.args[0] == code, e
        return
    raise AssertionError(f"no error {code}")


def plain(port):
    assert one(connect(port), "SELECT 1 + 1") == 2


def tls(port):
    conn = connect(port, ssl=unverified(), ssl_disabled=False)
    with conn.cursor() as c:
        c.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        assert c.fetchone()[1]


def wrong_password(port):
    fails(1045, lambda: connect(port, password="wrong"))


def parameters(port):
    conn = connect(port)
    for value in (7, -1.5, "it's", None):
        assert one(conn, "SELECT %s", value) == value
    assert one(conn, "SELECT HEX(%s)", b"\x00\xff") == "00FF"


def charset(port):
    conn = connect(port)
    assert one(conn, "SELECT CONCAT(%s, '')", "Zürich 日本 🐬") == "Zürich 日本 🐬"
    assert one(conn, "SELECT text FROM data WHERE id = 1") == "Zürich 日本 🐬"


def large_result(port):
    with connect(port).cursor(pymysql.cursors.SSCursor) as c:
        c.execute("WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
                  "SELECT REPEAT('x', 20000) FROM n")
        assert sum(len(row[0]) for row in c) == 20_000_000


def large_parameter(port):
    assert one(connect(port), "SELECT LENGTH(%s)", "x" * 8_000_000) == 8_000_000


def multi_statement(port):
    conn = connect(port, client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS)
    with conn.cursor() as c:
        c.execute("SELECT 1; SELECT 2")
        assert c.fetchone()[0] == 1 and c.nextset() and c.fetchone()[0] == 2


def timeout(port):
    fails(2013, lambda: one(connect(port, read_timeout=1), "SELECT SLEEP(20)"))


def kill_query(port):
    conn = connect(port)
    fails(3024, lambda: one(conn, "SELECT /*+ MAX_EXECUTION_TIME(300) */ COUNT(*) FROM information_schema.columns a, "
                                  "information_schema.columns b, information_schema.columns c"))
    assert one(conn, "SELECT 1") == 1


def refused(port):
    def write():
        with connect(port).cursor() as c:
            c.execute("INSERT INTO data VALUES (99, 'no')")
    fails(1290, write)


def transaction(port):
    conn = connect(port)
    with conn.cursor() as c:
        c.execute("DELETE FROM data WHERE id > 1000")
        conn.commit()
        c.execute("INSERT INTO data VALUES (1001, 'a')")
        conn.rollback()
        assert one(conn, "SELECT COUNT(*) FROM data WHERE id > 1000") == 0
        c.execute("INSERT INTO data VALUES (1001, 'a')")
        conn.commit()
    assert one(connect(port), "SELECT COUNT(*) FROM data WHERE id > 1000") == 1


def load_data(port):
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as f:
        f.writelines(f"{n},row {n}\n" for n in range(2001, 3001))
        f.flush()
        conn = connect(port, local_infile=True)
        with conn.cursor() as c:
            c.execute("DELETE FROM data WHERE id > 2000")
            c.execute(f"LOAD DATA LOCAL INFILE '{f.name}' INTO TABLE data FIELDS TERMINATED BY ','")
        conn.commit()
        assert one(conn, "SELECT COUNT(*) FROM data WHERE id > 2000") == 1000


def goes_on(port, what):
    """What docs/connect.md says: an error ends the connection, the next one is opened, what had no OK is repeated."""
    conn = connect(port, read_timeout=10)
    write, lost = port == "WRITE", False
    urllib.request.urlopen(f"{os.environ['CONTROL']}/{what}").read()
    end = time.time() + 60
    while True:
        try:
            if lost:
                conn = connect(port, first=1, read_timeout=10)
            if write:
                with conn.cursor() as c:
                    c.execute("REPLACE INTO data VALUES (3001, %s)", (what,))
                conn.commit()
            assert one(conn, "SELECT COUNT(*) FROM data WHERE id = 1") == 1
            assert SPLIT or one(conn, "SELECT @@super_read_only") == (0 if write else 1)
            return
        except (pymysql.err.OperationalError, pymysql.err.InternalError, pymysql.err.InterfaceError):
            if time.time() > end:
                raise
            lost = True
            time.sleep(0.05)


def switchover(port):
    goes_on(port, "switchover")


def failover(port):
    goes_on(port, "kill")


# MySQL Router forbids several statements in one where it shares connections.
BOTH = [plain, tls, wrong_password, parameters, charset, large_result, large_parameter, timeout, kill_query]
BOTH += [] if SPLIT else [multi_statement]
CASES = [("WRITE", c) for c in BOTH + [transaction, load_data, switchover, failover]]
# Its port for reads leads to the primary while it knows no replica.
CASES += [("READ", c) for c in BOTH + ([] if SPLIT else [refused]) + [switchover, failover]]
for port, case in CASES:
    try:
        case(port)
        print(f"ok {port} {case.__name__}", flush=True)
    except Exception as e:  # each case counts for itself
        print(f"FAIL {port} {case.__name__} {type(e).__name__}: {e}".replace("\n", " "), flush=True)
sys.exit(0)
