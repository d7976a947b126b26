package binlog

import (
	"fmt"
	"strconv"
)

// Each incarnation of a mysqld has a binlog directory and a base name of its own, of fixed
// width. A server that found an old binlog would commit the transactions that are prepared
// there. A server that used a name again could be sent an ACK for an earlier file of that name,
// and would believe it (names are compared by length first,
// plugin/semisync/semisync_source.cc).

// IncarnationDir names the directory of incarnation n's binlog.
func IncarnationDir(n uint64) string { return fmt.Sprintf("%010d", n) }

// ParseIncarnationDir returns n of IncarnationDir(n); ok=false: this is no such name.
func ParseIncarnationDir(name string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(name, 10, 64)
	return n, err == nil && name == IncarnationDir(n)
}

// IncarnationBase is the base name of the binlog files of incarnation n.
func IncarnationBase(n uint64) string { return fmt.Sprintf("q%010d", n) }
