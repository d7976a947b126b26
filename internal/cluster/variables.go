package cluster

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Bounds of the cluster's variables: with these a state has 40 KiB of them at most, and each
// change of the state brings all of it.
const (
	// VariablesMax is how many there can be.
	VariablesMax          = 64
	variableNameBytesMax  = 64
	variableValueBytesMax = 512
	// variableShownBytesMax is how much of a value is told in a line.
	variableShownBytesMax = 40
)

// VariablesChange changes the server variables that all nodes have.
type VariablesChange struct {
	// Set has them by VariableName.
	Set map[string]string `json:"set,omitempty"`
	// Unset are names of variables that are each node's own again.
	Unset []string `json:"unset,omitempty"`
}

// VariableName is the one form of a variable's name: as the server shows it.
func VariableName(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "-", "_")
}

// String says in a line what is set.
func (c VariablesChange) String() string {
	var said []string
	for _, name := range slices.Sorted(maps.Keys(c.Set)) {
		value := c.Set[name]
		if len(value) > variableShownBytesMax {
			value = strings.ToValidUTF8(value[:variableShownBytesMax], "") + "…"
		}
		said = append(said, name+"="+value)
	}
	text := ""
	if len(said) > 0 {
		text = "set variables " + strings.Join(said, ", ")
	}
	if len(c.Unset) > 0 {
		if text != "" {
			text += "; "
		}
		text += "unset variables " + strings.Join(c.Unset, ", ")
	}
	return text
}

// Check refuses what can be no variable of any server. Which may be set says package mysqld.
func (c VariablesChange) Check() error {
	if len(c.Set) == 0 && len(c.Unset) == 0 {
		return errors.New("nothing is said of variables: NAME=VALUE is missing")
	}
	if len(c.Set)+len(c.Unset) > VariablesMax {
		return fmt.Errorf("there can be %d variables, not %d", VariablesMax, len(c.Set)+len(c.Unset))
	}
	name := regexp.MustCompile(fmt.Sprintf(`^[a-z][a-z0-9_]{0,%d}$`, variableNameBytesMax-1))
	for _, n := range slices.Concat(slices.Sorted(maps.Keys(c.Set)), c.Unset) {
		if !name.MatchString(n) {
			return fmt.Errorf("%q is not the name of a server variable, as SHOW VARIABLES prints it", n)
		}
		_, set := c.Set[n]
		if set && slices.Contains(c.Unset, n) {
			return fmt.Errorf("variable %s is both set and unset", n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(c.Set)) {
		if v := c.Set[n]; len(v) > variableValueBytesMax || !printable(v) {
			return fmt.Errorf("the value of variable %s must have %d bytes at most, and no control characters", n, variableValueBytesMax)
		}
	}
	return nil
}

func (s *State) setVariables(c VariablesChange) (changed bool, err error) {
	if err := c.Check(); err != nil {
		return false, err
	}
	before := maps.Clone(s.Variables)
	for _, name := range c.Unset {
		delete(s.Variables, name)
	}
	if s.Variables == nil && len(c.Set) > 0 {
		s.Variables = map[string]string{}
	}
	maps.Copy(s.Variables, c.Set)
	switch {
	case len(s.Variables) > VariablesMax:
		return false, fmt.Errorf("there would be %d variables, at most %d can be: unset some, or write them into each node's [mysql.variables]", len(s.Variables), VariablesMax)
	case len(s.Variables) == 0:
		s.Variables = nil // so that a state without is the same one
	}
	return !maps.Equal(before, s.Variables), nil
}

// VariablesRequest asks for a change of the variables.
type VariablesRequest struct {
	VariablesChange
	DryRun bool `json:"dry_run,omitempty"`
}

// VariablesTry asks a node whether its server takes values.
type VariablesTry struct {
	Set map[string]string `json:"set"`
	// DryRun: nothing is set on the server, also not for a moment.
	DryRun bool `json:"dry_run,omitempty"`
}

// VariablesTried is what a server made of values that it takes.
type VariablesTried struct {
	// Restart are those that a running server does not take.
	Restart []string `json:"restart,omitempty"`
	// Made are values that the server would show otherwise than as they were asked for.
	Made map[string]string `json:"made,omitempty"`
}

// VariablesApply asks a node to run with the variables of a state.
type VariablesApply struct {
	// Index is that of the entry that has brought them.
	Index uint64 `json:"index"`
}

// VariablesOf is how a node's server runs with the cluster's variables.
type VariablesOf struct {
	Node string `json:"node"`
	// Restart are names whose values wait for a restart of mysqld.
	Restart []string `json:"restart,omitempty"`
	// Failed says by name in the server's words why it has not taken a value.
	Failed map[string]string `json:"failed,omitempty"`
	// Own are values in the node's configuration, which the cluster's stand above.
	Own map[string]string `json:"own,omitempty"`
	// Error says why nothing is known of this node; "" = all of it is.
	Error string `json:"error,omitempty"`
}

// VariablesResult says what became of a VariablesRequest.
type VariablesResult struct {
	ChangeResult
	// Nodes are those with a mysqld.
	Nodes []VariablesOf `json:"nodes,omitempty"`
}

// VariablesList are the cluster's variables.
type VariablesList struct {
	Variables map[string]string `json:"variables"`
	Nodes     []VariablesOf     `json:"nodes"`
}
