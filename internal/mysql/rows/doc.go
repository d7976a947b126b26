// Package rows reads all rows of a statement into a slice or a map. Code that streams rows, or reads one row, does
// not need it.
//
// It returns the driver's errors unchanged: the caller adds what it wanted to read.
package rows
