package experiment

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// reasonBytesMax bounds a reason.
const reasonBytesMax = 600

// oneLine makes one line of an error, for a row.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > reasonBytesMax {
		text = text[:reasonBytesMax] + " …"
	}
	return strings.ToValidUTF8(text, "?")
}

// fileName makes the name of a directory from a cell's key.
func fileName(key string) string {
	return regexp.MustCompile(`[^A-Za-z0-9_.,=#-]`).ReplaceAllString(key, "_")
}

// machine describes the machine of the run.
func machine() map[string]string {
	m := map[string]string{
		"processors": fmt.Sprint(runtime.NumCPU()),
		"processor":  field("/proc/cpuinfo", "model name"),
		"memory":     field("/proc/meminfo", "MemTotal"),
		"go":         runtime.Version(),
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		m["kernel"] = unix.ByteSliceToString(name.Release[:])
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m["load before"] = strings.TrimSpace(string(load))
	}
	return m
}

// field returns the first value of a line "name : value".
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
