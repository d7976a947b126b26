// Package mutation breaks production code, one rule at a time, and wants the
// simulator to see it (docs/mutations.md).
//
// A mutation is an edit of one or more files, by their exact text. The edited
// files are never in the tree: `go build -overlay` puts them in the place of the
// real ones.
//
//	go test ./test/mutation                   every text is still there, once, and what comes of it is Go
//	go test -tags mutation ./test/mutation    every mutation is built, run and caught; minutes
//
// A mutation whose text is gone is written again for the code that took its place,
// or removed with the rule that it broke.
package mutation
