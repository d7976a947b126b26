package notify

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// sendTimeout bounds the sending of a message: the manager's queue may be full.
const sendTimeout = time.Second

// Manager is the service manager of this process.
type Manager struct {
	socket string
	// Watchdog is the longest time between two Beats: after more the manager ends the process. 0 = it
	// wants no Beat.
	Watchdog time.Duration
}

// The lines that the protocol has.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	Beat     = "WATCHDOG=1"
)

// Status is a line that people see in systemctl status.
func Status(text string) string { return "STATUS=" + strings.ReplaceAll(text, "\n", " ") }

// New returns the service manager that the environment names to the process pid.
func New(getenv func(string) string, pid int) Manager {
	m := Manager{socket: getenv("NOTIFY_SOCKET")}
	micros, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if of := getenv("WATCHDOG_PID"); err == nil && m.socket != "" && micros > 0 && (of == "" || of == strconv.Itoa(pid)) {
		m.Watchdog = time.Duration(micros) * time.Microsecond
	}
	return m
}

// There tells whether there is a service manager.
func (m Manager) There() bool { return m.socket != "" }

// Send sends lines.
func (m Manager) Send(lines ...string) error {
	if !m.There() {
		return nil
	}
	conn, err := net.Dial("unixgram", m.socket) // "@name" is a socket without a file
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	defer conn.Close()
	if err = conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err == nil {
		_, err = conn.Write([]byte(strings.Join(lines, "\n")))
	}
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}
