// Package lint has tests for the repository's own rules: dependencies point
// only down, pure packages are pure, files and functions stay small enough to
// read, every package says what it is for, pages are short and their links lead
// somewhere, the simulator decides nothing, the code that it runs has one clock, and
// durable files are written by package vfs.
//
// The package has no code of its own; it owns nothing and starts nothing.
package lint
