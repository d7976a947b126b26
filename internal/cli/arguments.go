package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quorate/quorate/internal/config"
)

// suggestionEditsMax is how many letters a command may be misspelt by that a
// message still names.
const suggestionEditsMax = 2

// noArgs refuses arguments. Of a command with others below it they are commands
// that nobody knows.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !cmd.HasSubCommands():
		return fmt.Errorf("%q is one argument too many: %s takes none", args[0], cmd.CommandPath())
	}
	cmd.SuggestionsMinimumDistance = suggestionEditsMax
	hint := ""
	if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
		hint = fmt.Sprintf(" (did you mean \"%s\"?)", strings.Join(names, `" or "`))
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
}

// oneArg wants the one argument that is called so.
func oneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("%s is missing: %s", name, cmd.UseLine())
		case len(args) > 1:
			return fmt.Errorf("%q is one argument too many: %s", args[1], cmd.UseLine())
		}
		return nil
	}
}

// flagError says which flag may have been meant, or what it wants.
func flagError(cmd *cobra.Command, err error) error {
	if found := regexp.MustCompile(`^invalid argument (".*") for "(.*, )?--([a-z-]+)" flag`).FindStringSubmatch(err.Error()); found != nil {
		wants := map[string]string{"int": "a whole number", "duration": "a number with a unit, such as 30s, 5m or 2h", "bool": "true or false"}
		if f := cmd.Flags().Lookup(found[3]); f != nil && wants[f.Value.Type()] != "" {
			return fmt.Errorf("--%s must be %s, not %s", found[3], wants[f.Value.Type()], found[1])
		}
	}
	if cmd.Name() == mysqlCommand && strings.HasPrefix(err.Error(), "unknown ") {
		return fmt.Errorf("%w: options of the mysql client come after --, as in quorate mysql -- -e \"SELECT 1\"", err)
	}
	found := regexp.MustCompile(`^unknown flag: --([a-z-]+)`).FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	if name := config.Closest(found[1], names); name != "" {
		return fmt.Errorf("%w (did you mean --%s?)", err, name)
	}
	return err
}
