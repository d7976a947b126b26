// Package devcluster runs a whole cluster on one machine: N `quorate run`
// processes on loopback, each with a mysqld of its own, for `quorate demo` and
// for the end-to-end tests. It also breaks them: kill, stop, continue, cut off.
//
// # What it owns
//
// The directory given to New, and every process started in it:
//
//	DIR/a/node.toml   configuration of node a
//	DIR/a/data/       its data_dir
//	DIR/a/agent.log   what its agent printed, appended from start to start
//	DIR/b/ …
//
// All nodes of a cluster listen on one loopback address that no other cluster
// uses, a random one of 127.0.0.0/8 (see choosePlace), or on Options.Host.
//
// # Processes and goroutines
//
// New starts nothing. Package subprocess starts the agents, so that no process survives if the demo
// itself is killed. Each agent has a process group of its own, so Ctrl-C on the demo's terminal
// reaches only the demo, which then stops the agents in order. Stop (and Close, which also
// removes the directory) returns when all agents and all of their mysqlds are gone.
//
// mysqld belongs to its agent. This package finds it as the agent's child process, and holds its
// pidfd while it sends a signal.
//
// With Options.Network every connection between two agents goes through a proxy
// of this process, which can stop the bytes of one direction (network.go). The
// proxies' goroutines begin with the first Start and have ended when Stop
// returns.
//
// A Cluster may be used from several goroutines, but only one may start,
// signal or stop a given node at a time.
package devcluster
