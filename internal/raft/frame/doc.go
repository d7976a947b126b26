// Package frame reads and writes the frames of the protocols on the peer port: a header of 12 bytes, and a
// payload.
//
// The layout is in docs/formats.md, "Frame".
//
// A flipped bit anywhere is found. Each protocol has its own types and its own limit on the payload: packages
// transport (QF), bulk (QB) and control (QC).
package frame
