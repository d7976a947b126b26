// Package hostile plays a client that sends anything, for the fuzz targets of what listens.
//
// A client has a socket of the kernel's own, whose other end is served by the code that the target is
// about. Both ends have to be done soon, and what the process allocates meanwhile is bounded. Mend makes
// frames of what a fuzzer has made of frames: without it no input gets behind their checksums.
//
// The package owns what it opens, for the time of a call. Its goroutines end with that.
package hostile
