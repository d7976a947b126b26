package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/install"
)

// shownSetting is one line of "quorate config show --json".
type shownSetting struct {
	config.Setting
	// From is default, file, cluster, or the name of an environment variable.
	From string `json:"from"`
	// Below is the value in the file, where the cluster's value overrides it.
	Below string `json:"file_value,omitempty"`
}

func newConfigShowCommand() *cobra.Command {
	var o controlOptions
	cmd := &cobra.Command{
		Use:   "show [--config FILE]",
		Short: "Show all settings of a node, and where each comes from",
		Long: `Shows every setting with which a node starts, and where its value comes from: a line of the
file, the default, an environment variable, or the cluster. The cluster's variables
("quorate variables") override [mysql.variables] of the file. Passwords are not shown.

The agent reads the file when it starts. Its [[member]] list has the members with which the
cluster began; "quorate node list" shows the present ones.

Only a running agent knows the cluster's variables. If it does not answer, a line on stderr
says so.`,
		Example: `  quorate config show
  quorate config show --config node.toml --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := namedConfig(o.path)
			if err != nil {
				return err
			}
			c, err := loadConfig(name)
			if err != nil {
				return err
			}
			all := shownSettings(c, o.clusterVariables(cmd))
			return show(cmd.OutOrStdout(), o.asJSON, all, settingsTable(name, all))
		},
	}
	configFlag(cmd, &o.path)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the settings in JSON")
	return cmd
}

// clusterVariables are the server variables that the agent knows for the cluster; nil = it does not answer. Then a
// line says so.
func (o *controlOptions) clusterVariables(cmd *cobra.Command) map[string]string {
	var list cluster.VariablesList
	asked := *o
	asked.timeout = 5 * time.Second
	err := asked.ask(cmd.Context(), "variables.list", struct{}{}, &list)
	if err == nil {
		return list.Variables
	}
	why := "no agent answers"
	if errors.Is(err, os.ErrPermission) {
		why = "this account may not ask the agent"
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "quorate: the cluster's variables are not known: "+why)
	return nil
}

func shownSettings(c config.Config, variables map[string]string) (all []shownSetting) {
	left := maps.Clone(variables)
	for _, s := range c.Settings() {
		shown := shownSetting{Setting: s, From: "file"}
		name, isVariable := strings.CutPrefix(s.Key, "mysql.variables.")
		value, ofCluster := left[cluster.VariableName(name)]
		switch {
		case isVariable && ofCluster:
			delete(left, cluster.VariableName(name))
			shown.Value, shown.From, shown.Below = value, "cluster", s.Value
		case s.Key == "mysql.base_dir" && s.Value == "" && os.Getenv(install.EnvBaseDir) != "":
			shown.Value, shown.From = os.Getenv(install.EnvBaseDir), install.EnvBaseDir
		case s.Line == 0:
			shown.From = "default"
		}
		all = append(all, shown)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		all = append(all, shownSetting{config.Setting{Key: "mysql.variables." + name, Value: left[name]}, "cluster", ""})
	}
	return all
}

func settingsTable(file string, all []shownSetting) string {
	var rows [][]string
	for _, s := range all {
		from := s.From
		switch {
		case s.From == "file":
			from = fmt.Sprintf("%s:%d", filepath.Base(file), s.Line)
		case s.Below != "":
			from = fmt.Sprintf("cluster (overrides %q in %s:%d)", s.Below, filepath.Base(file), s.Line)
		case s.From == install.EnvBaseDir:
			from = "$" + s.From
		}
		rows = append(rows, []string{s.Key, oneLine(cmp.Or(s.Value, "\"\"")), from})
	}
	return table("SETTING\tVALUE\tFROM", rows)
}
