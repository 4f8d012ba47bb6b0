package main

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: action(func(*cobra.Command, []string) error {
			if a.json {
				version, goVersion, commit := build()
				a.printJSON(map[string]string{"version": version, "go": goVersion, "commit": commit})
				return nil
			}
			a.printf("%s\n", versionText())
			return nil
		}),
	}
}

// versionText returns, for people, what the program was built from.
func versionText() string {
	version, goVersion, commit := build()
	return fmt.Sprintf("drawgate %s (%s)", version, strings.TrimSuffix(goVersion+", "+commit, ", "))
}

// The release command sets these with -ldflags="-X main.releaseVersion=...": it builds without what
// the state of a repository would add, so that the program is the same wherever it is built.
var releaseVersion, releaseCommit string

// build returns what the program was built from.
func build() (version, goVersion, commit string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", "", ""
	}
	if releaseVersion != "" {
		return releaseVersion, info.GoVersion, releaseCommit
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value[:min(12, len(s.Value))]
		}
	}
	return cmp.Or(info.Main.Version, "unknown"), info.GoVersion, commit
}
