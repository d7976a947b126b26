// Package frame reads and writes the frames of which the protocols of the peer port consist:
// a header of 12 bytes, and a payload.
//
//	offset  bytes  what
//	0       2      magic, which names the protocol, little-endian
//	2       1      version of the frame
//	3       1      type: what the payload is
//	4       4      length of the payload, little-endian
//	8       4      CRC32C of the 8 bytes before it, then of the payload, little-endian
//
// A flipped bit anywhere is found. The types, and how long a payload may be, are each
// protocol's own: packages transport (QF), bulk (QB) and control (QC).
package frame
