// Package e2e holds the end-to-end tests: clusters of real `quorate run`
// processes with real mysqlds, which are broken in every way that the product claims to
// survive, and then compared with a ledger of what the clients were told.
//
// # How a test is built
//
// A fixture is one cluster (package devcluster), shared by the scenarios of one
// test function, and the history of everything that was written to it. Each
// scenario brings the cluster to health, starts writers (package ledger),
// breaks something, waits until the cluster works again, stops the writers and
// has every server checked against the whole history.
//
// No test waits for a time to pass, except while a fault lasts:
// every wait is for a condition, with a deadline. "Sessions wait for an ACK" is such a condition: it is read from
// the primary's process list while the followers are stopped. In those tests
// the writers start after the followers have stopped, so not one OK is allowed.
//
// A test calls beside unless it measures (rates, pauses, a write gap that it judges). Eight
// clusters run at once, or as many as -parallel says, after the tests that run alone. The longest tests begin first. Their
// writers pause, so that servers are slowed down by faults and not by each other. The servers are
// copies of one that was initialised (package mysqldtest), except where the beginning of a cluster is the
// subject.
//
// # What it costs
//
// A run is bound by CPU. On two cores it takes some 1 600 s of CPU time, without the kernel's work for the disk: mysqld
// 930 s, half of it for its 500 starts; 450 lives of agents 470 s; these tests 180 s; copies of servers 28 s. A cluster
// costs 4 s until its end. A test alone uses a third of one core, and waits the rest of the time. These make a run
// shorter: scenarios that share a cluster, a mysqld that need not start, fewer transactions that no test looks at
// (1000 cost 3 s), fewer looks at a condition (1000 cost 2 s), and writers that are quiet while nodes heal. With a
// tmpfs in place of the disk, as in make test (scripts/test-tmpdir.sh), it is a sixth less. A start of mysqld takes
// 0.4 s whatever its settings: a tenth is a clock that it calibrates, a fifth threads that wait for each other, the
// rest its dictionary and its memory.
//
// # Attacks
//
// TestAttack plays the attacker (attack_*_test.go): one cluster with keys is attacked from addresses of
// 127.66.0.0/16 in the ways of docs/security.md. It is here, and not in a package of its own, because it needs the
// fixture, the program, the servers and the writers of the other tests. Each attack comes from an address of its
// own, by which the test finds its lines in the agents' logs. The test makes the bytes for the peer port itself:
// package transport cannot send what agents refuse. TestAttackPlain shows that the attacks can succeed: the same
// attackers get what they want in a cluster without keys.
//
// TestAttackSilence prints how many rows were written while silent connections come and stay. It
// only judges that no write waits for them: on shared cores the rate says little. docs/security.md has the rate
// of a quiet machine.
//
// The files of tests that fail, or are ended, are removed, except agent.log and node.toml.
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
