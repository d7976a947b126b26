package cli

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// versionInfo is what `quorate version --json` prints.
type versionInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func newVersionInfo(deps Deps) versionInfo {
	return versionInfo{deps.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH}
}

func (v versionInfo) String() string {
	return fmt.Sprintf("quorate %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
}

func newVersionCommand(deps Deps) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long:  `Prints the version of this program.`,
		Example: `  quorate version
  quorate version --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := newVersionInfo(deps)
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			return printText(cmd.OutOrStdout(), v.String())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
