package cluster

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Bounds of the cluster's variables. With these a state has at most 40 KiB of variables. Each change of the
// state contains all of them.
const (
	// VariablesMax is how many variables there can be.
	VariablesMax          = 64
	variableNameBytesMax  = 64
	variableValueBytesMax = 512
	// variableShownBytesMax is how much of a value is shown in one line.
	variableShownBytesMax = 40
)

// VariablesChange changes the server variables that all nodes have.
type VariablesChange struct {
	// Set has the values by VariableName.
	Set map[string]string `json:"set,omitempty"`
	// Unset are the names of variables for which each node's own value is in force again.
	Unset []string `json:"unset,omitempty"`
}

// VariableName returns the one form of a variable's name: as the server shows it.
func VariableName(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "-", "_")
}

// String says in one line what is set.
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

// Check refuses names and values that no server variable can have. Package mysqld says which variables may be
// set.
func (c VariablesChange) Check() error {
	if len(c.Set) == 0 && len(c.Unset) == 0 {
		return errors.New("no variable is named: NAME=VALUE is missing")
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
		s.Variables = nil // then a state without variables is equal to this one
	}
	return !maps.Equal(before, s.Variables), nil
}

// VariablesRequest asks for a change of the variables.
type VariablesRequest struct {
	VariablesChange
	DryRun bool `json:"dry_run,omitempty"`
}

// VariablesTry asks a node whether its server accepts values.
type VariablesTry struct {
	Set map[string]string `json:"set"`
	// DryRun: nothing is set on the server, not even for a moment.
	DryRun bool `json:"dry_run,omitempty"`
}

// VariablesTried is the result for values that a server accepts.
type VariablesTried struct {
	// Restart are the variables that a running server does not accept.
	Restart []string `json:"restart,omitempty"`
	// Made are values that the server would show in another form than the one asked for.
	Made map[string]string `json:"made,omitempty"`
}

// VariablesApply asks a node to run with the variables of a state.
type VariablesApply struct {
	// Index is the index of the entry that brought the variables.
	Index uint64 `json:"index"`
}

// VariablesOf says how a node's server runs with the cluster's variables.
type VariablesOf struct {
	Node string `json:"node"`
	// Restart are the names of variables whose values wait for a restart of mysqld.
	Restart []string `json:"restart,omitempty"`
	// Failed says, for a variable's name, in the server's words why it has not accepted the value.
	Failed map[string]string `json:"failed,omitempty"`
	// Own are values in the node's configuration, over which the cluster's values take precedence.
	Own map[string]string `json:"own,omitempty"`
	// Error says why nothing is known of this node; "" = everything is known.
	Error string `json:"error,omitempty"`
}

// VariablesResult is the result of a VariablesRequest.
type VariablesResult struct {
	ChangeResult
	// Nodes are the nodes with a mysqld.
	Nodes []VariablesOf `json:"nodes,omitempty"`
}

// VariablesList are the cluster's variables.
type VariablesList struct {
	Variables map[string]string `json:"variables"`
	Nodes     []VariablesOf     `json:"nodes"`
}
