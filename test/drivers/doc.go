// Package drivers proves ports 6446 and 6447, and the ports of a stock MySQL Router (split and read-only), with the
// drivers that applications use: go-sql-driver, PyMySQL, mysql2 and MySQL Connector/J (with HikariCP). Each has a suite
// here: connections with and without TLS, prepared statements, large packets, LOAD DATA LOCAL, timeouts, resets, and
// going on over a switchover and a SIGKILL of the primary, with the settings of docs/connect.md.
//
// The drivers' own suites, where they are published, run too: upstream.txt has the tests that are left out.
//
// It runs with "make drivers", which sets QUORATE_DRIVERS to where scripts/get-drivers.sh has put them; else it is
// skipped.
package drivers
