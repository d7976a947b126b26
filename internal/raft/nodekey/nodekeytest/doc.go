// Package nodekeytest is an operator's authority for nodes, for tests: it issues certificates into files.
//
// It owns only the files that its callers name, and starts no goroutine.
package nodekeytest
