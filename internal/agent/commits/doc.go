// Package commits times the stages of a commit on the primary, from mysqld's binlog to the ACK, and says how a node
// has committed in the last seconds. It decides nothing.
//
// It owns histograms, which are metrics, and the newest 4096 batches of a tap whose ACK has not gone. It starts no
// goroutine; its types have locks. Nothing is durable.
package commits
