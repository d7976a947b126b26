package config

import _ "embed"

//go:embed example.toml
var example string

// Example returns a complete, commented configuration file in which every
// setting has its default.
func Example() string { return example }
