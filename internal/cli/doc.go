// Package cli is the command line of quorate: it parses arguments, calls one
// other package per command and prints.
//
// Results go to stdout, everything else to stderr. An error is one line that
// begins with "quorate: "; a configuration with three mistakes makes three
// lines. JSON output (--json) is an interface: fields are only added.
//
// Exit codes:
//
//	0  success
//	1  failure: the agent failed, nobody answers, …
//	2  wrong usage or a bad configuration; nothing was started
//	3  quorate status: the cluster has no primary
//
// Main starts no goroutine and owns no state. It ends when its context does;
// signals are main's business.
package cli
