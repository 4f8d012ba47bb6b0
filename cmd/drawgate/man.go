package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (a *app) manCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the manual pages",
		Long: `Write a manual page for each command into a directory, which is created if necessary: drawgate.1, drawgate-take.1 and so on. Packages put them
into man1 of a directory on the MANPATH.`,
		Example: `  drawgate man ~/.local/share/man/man1 && man drawgate-run`,
		Args:    cobra.ExactArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o750); err != nil {
				return &exitError{exitConfig, err}
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // two runs give the same bytes
			version, _, _ := build()
			header := &doc.GenManHeader{
				Title: "DRAWGATE", Section: "1", Source: "drawgate " + version,
				Manual: "Drawgate",
			}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return &exitError{exitConfig, err}
			}
			a.printf("wrote the pages to %s\n", args[0])
			return nil
		}),
	}
}
