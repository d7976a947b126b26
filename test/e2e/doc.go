// Package e2e holds the end-to-end tests: clusters of real `quorate run`
// processes with real mysqlds, broken in every way that the product claims to
// survive, and held to a ledger of what the clients were told.
//
// # How a test is built
//
// A fixture is one cluster (package devcluster), shared by the scenarios of one
// test function, and the history of everything that was written to it. Each
// scenario brings the cluster to health, starts writers (package ledger),
// breaks something, waits until the cluster works again, stops the writers and
// has every server checked against the whole history.
//
// Nothing here waits for a time to pass, but for a fault that lasts for one:
// every wait is for a condition, with a deadline. "Sessions wait for an ACK" is such a condition: it is read from
// the primary's process list while the followers are stopped. In those tests
// the writers start after the followers have stopped, so not one OK is allowed.
//
// A test calls Parallel unless it measures (rates, pauses, a write gap that it judges). Five
// clusters run at once, or as many as -parallel says, after the tests that run alone; their
// writers pause, so that servers are held up by faults and not by each other. The servers are
// copies of one that was initialised (package mysqldtest), but where a cluster's beginning is the
// subject.
//
// # What it costs
//
// A run is bound by CPU. On two cores it takes some 1 600 s of that, the kernel's work for the disk not counted: mysqld 930 s, half of it
// for its 500 starts; 450 lives of agents 470 s; these tests 180 s; copies of servers 28 s. A cluster costs 4 s until its end. A test alone
// uses a third of one core, the rest it waits. What makes a run shorter is a scenario that shares a cluster, a mysqld that need not start, a
// transaction that nobody looks at, and writers that are quiet while nodes heal. A tmpfs in place of the disk was tried: 6 % less.
//
// # Attacks
//
// TestAttack is the attacker's part (attack_*_test.go): one cluster with keys, attacked from addresses of
// 127.66.0.0/16 in the ways of docs/security.md. It is here, and no package of its own, because it needs the
// fixture, the program, the servers and the writers of the other tests. An attack comes from an address of its
// own, by which its lines in the agents' logs are found. What is said on the peer port is made here, not by
// package transport: that could not say what agents refuse. TestAttackPlain has the same attackers get what they
// are after, in a cluster without keys: so the attacks can fail.
//
// TestAttackSilence prints how many rows were written while connections that say nothing come and stay. It
// judges that no write waits for them: where cores are shared, the rate says little. docs/security.md has the rate
// of a quiet machine.
//
// What tests leave that fail, or are ended, is removed but for agent.log and node.toml.
//
// # What it needs
//
// A MySQL installation: $QUORATE_MYSQL_BASE, or the repository's own private
// one (make mysql). Without one the tests are skipped, and fail if $CI is set.
// With QUORATE_E2E_KEEP=1 a failed test leaves its whole directory; otherwise
// only the logs stay. With QUORATE_E2E_LONG=1 frozen nodes stay frozen for half a
// minute, and crash loops go on. TestClock needs libfaketime (package faketime, or
// QUORATE_FAKETIME names the library), TestKill/Memory the right to make a
// control group, TestLogDisk, TestMysqlDisk and TestPowerLoss /dev/fuse and the right
// to mount (package faultmount); they are skipped without.
package e2e
