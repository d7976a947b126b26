// Package notify tells the service manager the state of this process by systemd's protocol of sd_notify(3):
// a datagram of lines to a Unix socket that the environment names. Without such a socket it does nothing.
//
// It owns nothing, keeps no connection and starts no goroutine.
package notify
