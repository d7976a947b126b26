// Package deadhost notices that the host at the other end of a TCP connection has died, or cannot be reached any more.
//
// The kernel's keepalive does that for a connection on which nothing is under way (KeepAlive). While sent bytes are not
// acknowledged, Linux sends no keepalive, and repeats the bytes for about 15 minutes (tcp_retries2). A session in mysqld
// keeps its locks for that long. So a port also looks at its connections from time to time (Silent).
//
// TCP_USER_TIMEOUT is no way out: it ends connections of clients that are alive and read nothing for a while.
//
// It has no state, and no goroutines.
package deadhost
