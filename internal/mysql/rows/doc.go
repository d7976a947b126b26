// Package rows reads results whole: all rows of a statement into a slice or a map, of whatever runs statements. What
// streams, or reads one row, does not need it.
//
// An error is the driver's, as it is: the caller says what it wanted to read.
package rows
