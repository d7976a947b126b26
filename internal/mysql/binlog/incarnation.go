package binlog

import "fmt"

// Each incarnation of a mysqld has a binlog directory and a base name of its
// own, of fixed width. A server that found an old binlog would commit what it
// finds prepared there; one that used a name again could be sent the position
// of an earlier one of that name, and would believe it (names are compared by
// length first, plugin/semisync/semisync_source.cc).

// IncarnationDir names the directory of incarnation n's binlog.
func IncarnationDir(n uint64) string { return fmt.Sprintf("%010d", n) }

// IncarnationBase is the base name of its files.
func IncarnationBase(n uint64) string { return fmt.Sprintf("q%010d", n) }
