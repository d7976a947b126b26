// Package frame reads and writes the frames of which the protocols of the peer port consist:
// a header of 12 bytes, and a payload.
//
// The layout is in docs/formats.md, "Frame".
//
// A flipped bit anywhere is found. The types, and how long a payload may be, are each
// protocol's own: packages transport (QF), bulk (QB) and control (QC).
package frame
