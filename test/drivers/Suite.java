// MySQL Connector/J, and HikariCP as its pool, through quorate's ports: prints "ok NAME" or "FAIL NAME why" for each case.

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

public class Suite {
    interface Case { void run(String port) throws Exception; }

    /** At MySQL Router's split port clients use TLS, and give up a connection soon; reads may be a replica's. */
    static final boolean SPLIT = System.getenv("SPLIT") != null;

    static String url(String port, String more) {
        return "jdbc:mysql://" + System.getenv(port) + "/drivers?sslMode=" + (SPLIT ? "REQUIRED" : "DISABLED")
                + "&allowPublicKeyRetrieval=true&connectTimeout=" + (SPLIT ? 2000 : 40000) + "&socketTimeout=60000" + more;
    }

    static Properties account() {
        Properties p = new Properties();
        p.setProperty("user", System.getenv("DB_USER"));
        p.setProperty("password", System.getenv("DB_PASSWORD"));
        return p;
    }

    static Connection connect(String port, String more) throws SQLException {
        return DriverManager.getConnection(url(port, more), account());
    }

    static Object one(Connection c, String sql, Object... args) throws SQLException {
        try (PreparedStatement s = c.prepareStatement(sql)) {
            for (int i = 0; i < args.length; i++) {
                s.setObject(i + 1, args[i]);
            }
            try (ResultSet r = s.executeQuery()) {
                check(r.next(), "no row");
                return r.getObject(1);
            }
        }
    }

    static void check(boolean ok, String text) {
        if (!ok) {
            throw new IllegalStateException(text);
        }
    }

    static void fails(int code, Case run, String port) throws Exception {
        try {
            run.run(port);
        } catch (SQLException e) {
            check(e.getErrorCode() == code, e.getErrorCode() + " " + e.getMessage());
            return;
        }
        check(false, "no error " + code);
    }

    static void prepared(String port, String more) throws SQLException {
        try (Connection c = connect(port, more)) {
            check(one(c, "SELECT CONCAT(?, '')", "it's").equals("it's"), "text");
            check(((Number) one(c, "SELECT ? + 0", 7L)).longValue() == 7, "number");
            check(one(c, "SELECT ?", (Object) null) == null, "null");
            for (int i = 0; i < 100; i++) {
                check(((Number) one(c, "SELECT " + i)).intValue() == i, "many");
            }
        }
    }

    static Map<String, Case> both() {
        Map<String, Case> all = new LinkedHashMap<>();
        all.put("plain", port -> { try (Connection c = connect(port, "")) { check(((Number) one(c, "SELECT 1 + 1")).intValue() == 2, "sum"); } });
        all.put("tls", port -> {
            try (Connection c = DriverManager.getConnection(url(port, "").replace("DISABLED", "REQUIRED"), account());
                    ResultSet r = c.createStatement().executeQuery("SHOW STATUS LIKE 'Ssl_cipher'")) {
                check(r.next() && !r.getString(2).isEmpty(), "no cipher");
            }
        });
        all.put("wrong_password", port -> fails(1045, p -> {
            Properties wrong = account();
            wrong.setProperty("password", "wrong");
            DriverManager.getConnection(url(p, ""), wrong);
        }, port));
        all.put("prepared_client", port -> prepared(port, ""));
        all.put("prepared_server", port -> prepared(port, "&useServerPrepStmts=true&cachePrepStmts=true&prepStmtCacheSize=10"));
        all.put("charset", port -> {
            try (Connection c = connect(port, "")) {
                check(one(c, "SELECT CONCAT(?, '')", "Zürich 日本 🐬").equals("Zürich 日本 🐬"), "sent");
                check(one(c, "SELECT text FROM data WHERE id = 1").equals("Zürich 日本 🐬"), "stored");
            }
        });
        for (String cursor : new String[] {"", "&useCursorFetch=true&defaultFetchSize=50"}) {
            all.put("large_result" + (cursor.isEmpty() ? "" : "_cursor"), port -> {
                try (Connection c = connect(port, cursor); ResultSet r = c.createStatement().executeQuery(
                        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT REPEAT('x', 20000) FROM n")) {
                    long sum = 0;
                    while (r.next()) {
                        sum += r.getString(1).length();
                    }
                    check(sum == 20_000_000, sum + " bytes");
                }
            });
        }
        all.put("large_parameter", port -> {
            try (Connection c = connect(port, "&useServerPrepStmts=true")) {
                check(((Number) one(c, "SELECT LENGTH(?)", "x".repeat(8_000_000))).intValue() == 8_000_000, "length");
            }
        });
        all.put("multi_statement", port -> {
            try (Connection c = connect(port, "&allowMultiQueries=true"); Statement s = c.createStatement()) {
                check(s.execute("SELECT 1; SELECT 2") && s.getMoreResults(), "second result");
            }
        });
        all.put("timeout", port -> {
            try (Connection c = connect(port, "")) {
                c.setNetworkTimeout(Runnable::run, 1000);
                try {
                    one(c, "SELECT SLEEP(20)");
                    check(false, "no timeout");
                } catch (SQLException e) {
                    check(e.getSQLState().startsWith("08"), e.getSQLState());
                }
            }
        });
        all.put("change_user", port -> {
            try (Connection c = connect(port, "")) {
                c.createStatement().execute("SET @x = 1");
                c.unwrap(com.mysql.cj.jdbc.JdbcConnection.class).changeUser(System.getenv("DB_USER"), System.getenv("DB_PASSWORD"));
                check(one(c, "SELECT @x") == null, "@x is kept");
            }
        });
        all.put("reset", port -> {
            try (Connection c = connect(port, "")) {
                c.createStatement().execute("SET @x = 1");
                c.unwrap(com.mysql.cj.jdbc.JdbcConnection.class).resetServerState();
                check(one(c, "SELECT @x") == null, "@x is kept");
            }
        });
        return all;
    }

    /** A pool as docs/connect.md recommends it. */
    static void goesOn(String port, String what) throws Exception {
        HikariConfig cfg = new HikariConfig();
        cfg.setJdbcUrl(url(port, "&failOverReadOnly=false").replace("socketTimeout=60000", "socketTimeout=10000"));
        cfg.setUsername(System.getenv("DB_USER"));
        cfg.setPassword(System.getenv("DB_PASSWORD"));
        cfg.setMaximumPoolSize(4);
        cfg.setConnectionTimeout(45_000);
        cfg.setMaxLifetime(60_000);
        boolean write = port.equals("WRITE");
        try (HikariDataSource pool = new HikariDataSource(cfg)) {
            try (Connection c = pool.getConnection()) {
                one(c, "SELECT 1");
            }
            HttpResponse<String> answer = HttpClient.newHttpClient().send(
                    HttpRequest.newBuilder(URI.create(System.getenv("CONTROL") + "/" + what)).build(), HttpResponse.BodyHandlers.ofString());
            check(answer.statusCode() == 200, answer.body());
            for (long end = System.nanoTime() + 60_000_000_000L;;) {
                try (Connection c = pool.getConnection()) {
                    if (write) {
                        c.createStatement().execute("REPLACE INTO data VALUES (3003, '" + what + "')");
                    }
                    check(((Number) one(c, "SELECT COUNT(*) FROM data WHERE id = 1")).intValue() == 1, "row");
                    check(SPLIT || ((Number) one(c, "SELECT @@super_read_only + 0")).intValue() == (write ? 0 : 1), "super_read_only");
                    return;
                } catch (SQLException e) {
                    if (System.nanoTime() > end) {
                        throw e;
                    }
                }
            }
        }
    }

    static void run(String port, Map<String, Case> cases) {
        for (Map.Entry<String, Case> c : cases.entrySet()) {
            try {
                c.getValue().run(port);
                System.out.println("ok " + port + " " + c.getKey());
            } catch (Exception e) {
                System.out.println(("FAIL " + port + " " + c.getKey() + " " + e).replace('\n', ' '));
            }
        }
    }

    public static void main(String[] args) {
        Map<String, Case> write = both();
        write.put("transaction", port -> {
            try (Connection c = connect(port, ""); Statement s = c.createStatement()) {
                s.execute("DELETE FROM data WHERE id BETWEEN 7001 AND 7999");
                c.setAutoCommit(false);
                s.execute("INSERT INTO data VALUES (7001, 'a')");
                c.rollback();
                check(((Number) one(c, "SELECT COUNT(*) FROM data WHERE id = 7001")).intValue() == 0, "rolled back");
                s.execute("INSERT INTO data VALUES (7001, 'a')");
                c.commit();
                check(((Number) one(c, "SELECT COUNT(*) FROM data WHERE id = 7001")).intValue() == 1, "committed");
            }
        });
        write.put("cancel", port -> { // by KILL QUERY in a second connection: at the read-only port that may be on another server
            try (Connection c = connect(port, ""); Statement s = c.createStatement()) {
                s.setQueryTimeout(1);
                long began = System.nanoTime();
                try {
                    s.executeQuery("SELECT SLEEP(20)");
                } catch (SQLException e) {
                    // a timeout
                }
                check(System.nanoTime() - began < 15e9, "it was not cancelled");
            }
        });
        write.put("batch", port -> {
            try (Connection c = connect(port, "&rewriteBatchedStatements=true"); Statement s = c.createStatement()) {
                s.execute("DELETE FROM data WHERE id BETWEEN 8001 AND 8999");
                try (PreparedStatement p = c.prepareStatement("INSERT INTO data VALUES (?, ?)")) {
                    for (int i = 8001; i <= 8500; i++) {
                        p.setInt(1, i);
                        p.setString(2, "row");
                        p.addBatch();
                    }
                    p.executeBatch();
                }
                check(((Number) one(c, "SELECT COUNT(*) FROM data WHERE id BETWEEN 8001 AND 8999")).intValue() == 500, "rows");
            }
        });
        write.put("load_data", port -> {
            Path file = Files.createTempFile("rows", ".csv");
            StringBuilder rows = new StringBuilder();
            for (int i = 9001; i <= 10000; i++) {
                rows.append(i).append(",row\n");
            }
            Files.writeString(file, rows);
            try (Connection c = connect(port, "&allowLoadLocalInfile=true"); Statement s = c.createStatement()) {
                s.execute("DELETE FROM data WHERE id BETWEEN 9001 AND 10000");
                s.execute("LOAD DATA LOCAL INFILE '" + file + "' INTO TABLE data FIELDS TERMINATED BY ','");
                check(((Number) one(c, "SELECT COUNT(*) FROM data WHERE id BETWEEN 9001 AND 10000")).intValue() == 1000, "rows");
            } finally {
                Files.delete(file);
            }
        });
        Map<String, Case> read = both();
        read.put("refused", port -> fails(1290, p -> {
            try (Connection c = connect(p, "")) {
                c.createStatement().execute("INSERT INTO data VALUES (99, 'no')");
            }
        }, port));
        for (Map<String, Case> cases : java.util.List.of(write, read)) {
            cases.put("switchover", port -> goesOn(port, "switchover"));
            cases.put("failover", port -> goesOn(port, "kill"));
        }
        if (SPLIT) { // MySQL Router forbids several statements in one where it shares connections, and KILL is another server's
            write.keySet().removeAll(java.util.Set.of("multi_statement", "cancel"));
            read.keySet().removeAll(java.util.Set.of("multi_statement", "refused")); // its port for reads may lead to the primary
        }
        run("WRITE", write);
        run("READ", read);
        System.exit(0);
    }
}
