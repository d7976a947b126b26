// mysql2 through quorate's ports: prints "ok NAME" or "FAIL NAME why" for each case.
import { createRequire } from "node:module";
import path from "node:path";
import { Readable } from "node:stream";

const require = createRequire(path.join(process.env.DRIVERS, "node", "index.js"));
const mysql = require("mysql2/promise");
const hosts = (port) => process.env[port].split(",").map((a) => a.split(":"));

// At MySQL Router's split port clients use TLS, and give up a connection soon; reads may be a replica's.
const split = Boolean(process.env.SPLIT);
const options = (port, i, more) => ({
  host: hosts(port)[i][0], port: Number(hosts(port)[i][1]), user: process.env.DB_USER, password: process.env.DB_PASSWORD,
  database: "drivers", charset: "utf8mb4", connectTimeout: split ? 2000 : 40000, ...(split && { ssl: { rejectUnauthorized: false } }), ...more,
});

// mysql2 takes one host: the loop over hosts is the application's.
async function connect(port, more = {}, first = 0) {
  let error;
  for (let n = 0; n < hosts(port).length; n++) {
    try {
      return await mysql.createConnection(options(port, (first + n) % hosts(port).length, more));
    } catch (e) {
      if (e.errno === 1045) throw e;
      error = e;
    }
  }
  throw error;
}

// using closes what it opens.
async function using(port, more, f) {
  const conn = await connect(port, more);
  try {
    return await f(conn);
  } finally {
    conn.destroy();
  }
}

const assert = (ok, text) => {
  if (!ok) throw new Error(text ?? "it is not so");
};
const one = async (conn, sql, args) => Object.values((await conn.query(sql, args))[0][0])[0];
async function fails(codes, run) {
  try {
    await run();
  } catch (e) {
    assert([codes].flat().includes(e.errno ?? e.code), `${e.errno} ${e.code} ${e.message}`);
    return;
  }
  throw new Error(`no error ${codes}`);
}

const both = {
  plain: (port) => using(port, {}, async (c) => assert((await one(c, "SELECT 1 + 1")) === 2)),
  tls: (port) => using(port, { ssl: { rejectUnauthorized: false } }, async (c) =>
    assert((await c.query("SHOW STATUS LIKE 'Ssl_cipher'"))[0][0].Value !== "")),
  wrong_password: (port) => fails(1045, () => connect(port, { password: "wrong" })),
  prepared: (port) => using(port, {}, async (c) => {
    for (const v of [7, -1.5, "it's", null]) {
      const [rows] = await c.execute("SELECT CAST(? AS CHAR) AS v", [v]);
      assert(rows[0].v === (v === null ? null : String(v)), `${rows[0].v}`);
    }
    const [rows] = await c.execute("SELECT id, text FROM data WHERE id = ?", [1]);
    assert(rows[0].id === 1);
  }),
  many_prepared: (port) => using(port, { maxPreparedStatements: 10 }, async (c) => {
    for (let n = 0; n < 100; n++) assert((await c.execute(`SELECT ${n} AS v`))[0][0].v === n); // closes statements, too
  }),
  charset: (port) => using(port, {}, async (c) => {
    assert((await one(c, "SELECT CONCAT(?, '')", ["Zürich 日本 🐬"])) === "Zürich 日本 🐬");
    assert((await one(c, "SELECT text FROM data WHERE id = 1")) === "Zürich 日本 🐬");
  }),
  large_result: (port) => using(port, {}, async (c) => {
    const [rows] = await c.query("WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT REPEAT('x', 20000) AS x FROM n");
    assert(rows.reduce((sum, r) => sum + r.x.length, 0) === 20000000);
  }),
  large_parameter: (port) => using(port, {}, async (c) =>
    assert((await c.execute("SELECT LENGTH(?) AS n", ["x".repeat(8000000)]))[0][0].n === 8000000)),
  multi_statement: (port) => using(port, { multipleStatements: true }, async (c) => {
    const [sets] = await c.query("SELECT 1 AS v; SELECT 2 AS v");
    assert(sets[0][0].v === 1 && sets[1][0].v === 2);
  }),
  timeout: (port) => using(port, {}, (c) => fails("PROTOCOL_SEQUENCE_TIMEOUT", () => c.query({ sql: "SELECT SLEEP(20)", timeout: 1000 }))),
  change_user: (port) => using(port, {}, async (c) => {
    await c.query("SET @x = 1");
    await c.changeUser({ user: process.env.DB_USER, password: process.env.DB_PASSWORD, database: "drivers" });
    assert((await one(c, "SELECT @x")) === null);
  }),
  reset: (port) => using(port, {}, async (c) => {
    if (!c.reset) return;
    await c.query("SET @x = 1");
    await c.reset();
    assert((await one(c, "SELECT @x")) === null);
  }),
};

// A pool for each host, as docs/connect.md recommends: each query takes one that works.
async function goesOn(port, what) {
  const cluster = mysql.createPoolCluster({ removeNodeErrorCount: 1000, restoreNodeTimeout: 1000, defaultSelector: "ORDER" });
  for (let i = 0; i < hosts(port).length; i++) cluster.add(`db${i}`, options(port, i, { connectionLimit: 2, idleTimeout: 5000 }));
  const run = async (sql, args) => {
    const conn = await cluster.getConnection();
    try {
      const [rows] = await conn.query({ sql, values: args, timeout: 10000 });
      conn.release();
      return rows;
    } catch (e) {
      conn.destroy();
      throw e;
    }
  };
  await run("SELECT 1");
  const answer = await fetch(`${process.env.CONTROL}/${what}`);
  assert(answer.ok, await answer.text());
  for (const end = Date.now() + 60000; ; ) {
    try {
      if (port === "WRITE") await run("REPLACE INTO data VALUES (3002, ?)", [what]);
      const rows = await run("SELECT @@super_read_only AS r, COUNT(*) AS n FROM data WHERE id = 1");
      assert(rows[0].n === 1 && (split || rows[0].r === (port === "WRITE" ? 0 : 1)));
      break;
    } catch (e) {
      if (Date.now() > end) throw e;
      await new Promise((wake) => setTimeout(wake, 50));
    }
  }
  await cluster.end().catch(() => {});
}

const write = {
  ...both,
  transaction: (port) => using(port, {}, async (c) => {
    await c.query("DELETE FROM data WHERE id BETWEEN 4001 AND 4999");
    await c.beginTransaction();
    await c.execute("INSERT INTO data VALUES (4001, 'a')");
    await c.rollback();
    assert((await one(c, "SELECT COUNT(*) FROM data WHERE id = 4001")) === 0);
    await c.beginTransaction();
    await c.execute("INSERT INTO data VALUES (4001, 'a')");
    await c.commit();
    assert((await one(c, "SELECT COUNT(*) FROM data WHERE id = 4001")) === 1);
  }),
  load_data: (port) => using(port, { flags: ["+LOCAL_FILES"] }, async (c) => {
    const text = Array.from({ length: 1000 }, (_, n) => `${5001 + n},row\n`).join("");
    await c.query("DELETE FROM data WHERE id BETWEEN 5001 AND 6000");
    await c.query({ sql: "LOAD DATA LOCAL INFILE 'x' INTO TABLE data FIELDS TERMINATED BY ','", infileStreamFactory: () => Readable.from([Buffer.from(text)]) });
    assert((await one(c, "SELECT COUNT(*) FROM data WHERE id BETWEEN 5001 AND 6000")) === 1000);
  }),
  switchover: (port) => goesOn(port, "switchover"),
  failover: (port) => goesOn(port, "kill"),
};
const read = {
  ...both,
  refused: (port) => using(port, {}, (c) => fails(1290, () => c.query("INSERT INTO data VALUES (99, 'no')"))),
  switchover: write.switchover,
  failover: write.failover,
};

// MySQL Router forbids several statements in one where it shares connections. Its port for reads leads to the primary
// while it knows no replica.
if (split) {
  delete write.multi_statement;
  delete read.multi_statement;
  delete read.refused;
}

for (const [port, cases] of [["WRITE", write], ["READ", read]]) {
  for (const [name, run] of Object.entries(cases)) {
    try {
      await run(port);
      console.log(`ok ${port} ${name}`);
    } catch (e) {
      console.log(`FAIL ${port} ${name} ${e.code ?? ""} ${e.message}`.replaceAll("\n", " "));
    }
  }
}
process.exit(0);
