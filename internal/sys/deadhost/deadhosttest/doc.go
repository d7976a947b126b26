// Package deadhosttest lets the host at one end of a TCP connection die, for tests.
package deadhosttest
