// Package cli is the command line of quorate: it parses arguments, calls one
// other package per command and prints.
//
// Results go to stdout, everything else to stderr. An error is one line that begins with "quorate: "; a configuration
// with three mistakes makes three lines. Sizes, durations and times have the forms of package units. JSON output
// (--json) is an interface: fields are never removed or renamed, only added. With --json an error is also printed on
// stdout, as a JSON object in one line, if nothing was printed there before.
//
// Exit codes:
//
//	0  success
//	1  failure, or refused for now: the agent failed, nobody answers, …; quorate
//	   did-commit: only "not committed, and never will be"; quorate
//	   doctor: something fails
//	2  wrong usage, a bad configuration, a question without a person to answer it, or
//	   a request that can never be carried out as it stands, such as one for a node
//	   that does not exist; nothing was done
//	3  quorate status: the cluster has no primary; a request that changes the
//	   cluster: it has no leader, and nothing was done; quorate did-commit: it is
//	   not known (yet), or nobody answers
//	4  such a request was sent, and it is not known whether it was done; or a command
//	   has done its work, and cannot print the result
//
// Main owns no state. The only goroutines that it starts are the reader of a terminal, the watch over the agent
// that sends a copy, and the measurements of package doctor. It ends when its context does; package main handles signals.
package cli
