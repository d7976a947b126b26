package cli

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/config/units"
)

// suggestionEditsMax is how many wrong letters a misspelt command may have for a message to
// suggest the right one.
const suggestionEditsMax = 2

// noArgs refuses arguments. If the command has subcommands, the message says that the first argument is
// an unknown command.
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

// oneArg requires exactly one argument, which messages call name.
func oneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("%s is missing: %s", name, cmd.UseLine())
		case len(args) > 1:
			return fmt.Errorf("%q is one argument too many: %s", args[1], cmd.UseLine())
		case args[0] == "": // perhaps a variable of the shell that is not set
			return fmt.Errorf("%s is empty: %s", name, cmd.UseLine())
		}
		return nil
	}
}

// atMostOneArg accepts one argument or none.
func atMostOneArg(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return oneArg("the argument")(cmd, args)
}

// flagError says which flag may have been meant, or which value the flag needs.
func flagError(cmd *cobra.Command, err error) error {
	if w, ok := errors.AsType[*wordError](err); ok {
		return w
	}
	if found := regexp.MustCompile(`^invalid argument (".*") for "(.*, )?--([a-z-]+)" flag`).FindStringSubmatch(err.Error()); found != nil {
		wants := map[string]string{"int": "a whole number", "duration": "a number with a unit, such as 1.6s, 2h or 30d", "bool": "true or false"}
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

// noEmptyValues refuses a flag whose value is empty, as that of a shell's variable that is not set: the command would do
// as if the flag were not there, and then do more than was meant.
func noEmptyValues(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = cmp.Or(err, fmt.Errorf("the value of --%s is empty: give it one, or leave it out", f.Name))
		}
	})
	return err
}

// durationValue is a flag's duration, in the forms of package units.
type durationValue time.Duration

// durationFlag adds a flag that takes a duration.
func durationFlag(cmd *cobra.Command, to *time.Duration, name string, standard time.Duration, usage string) {
	*to = standard
	cmd.Flags().Var((*durationValue)(to), name, usage)
}

// Set reads a duration.
func (v *durationValue) Set(text string) error {
	d, err := units.ParseDuration(text)
	*v = durationValue(d)
	return err
}

// String shows it; "" = 0, which help leaves out.
func (v *durationValue) String() string {
	if *v == 0 {
		return ""
	}
	return units.Duration(time.Duration(*v))
}

// Type names the kind of value: flagError explains it.
func (v *durationValue) Type() string { return "duration" }

// wordValue is the value of a flag that takes one of a few words.
type wordValue struct {
	to    *string
	name  string
	words []string
}

// wordError says which words there are.
type wordError struct{ text string }

func (e *wordError) Error() string { return e.text }

// wordFlag adds a flag that takes one of a few words, which a shell completes.
func wordFlag[T ~string](cmd *cobra.Command, to *string, name, usage string, words ...T) {
	v := &wordValue{to: to, name: name}
	for _, w := range words {
		v.words = append(v.words, string(w))
	}
	cmd.Flags().Var(v, name, usage)
	// It cannot fail: the flag is new.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(v.words, cobra.ShellCompDirectiveNoFileComp))
}

// Set takes a word.
func (v *wordValue) Set(text string) error {
	if !slices.Contains(v.words, text) {
		return &wordError{fmt.Sprintf("--%s must be one of %s, not %q", v.name, strings.Join(v.words, ", "), text)}
	}
	*v.to = text
	return nil
}

// String shows it, and Type is what help calls it.
func (v *wordValue) String() string {
	if v.to == nil {
		return ""
	}
	return *v.to
}
func (*wordValue) Type() string { return "string" }

// oldNames accepts flags also by their former names.
func oldNames(cmd *cobra.Command, names map[string]string) {
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(names[name], name))
	})
}
