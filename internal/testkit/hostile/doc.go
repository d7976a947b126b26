// Package hostile plays a client that sends anything, for the fuzz targets of code that listens.
//
// A client has a real socket; the code under test serves its other end. Both ends must finish soon, and the memory that
// the process allocates meanwhile is bounded. Mend turns the bytes of a fuzzer into valid frames again: without it no
// input would get past the frames' checksums.
//
// The package closes all that it opens by the end of a call. Its goroutines end then, too.
package hostile
