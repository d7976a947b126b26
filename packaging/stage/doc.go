// Command stage writes the files of a package that are made from the program itself: man pages,
// shell completions, and an example of node.toml. It prints the version for packages.
package main
