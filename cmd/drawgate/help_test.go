package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExamplesInHelpParse: each command line that --help shows names a command and flags that
// exist.
func TestExamplesInHelpParse(t *testing.T) {
	t.Parallel()
	word := regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)
	lines := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example + "\n" + cmd.Long) {
			args := word.FindAllString(line, -1)
			at := slices.Index(args, "drawgate")
			if at < 0 || !strings.HasPrefix(line, "  ") || at > 0 && !strings.Contains(args[at-1], "=") {
				continue // another program's, or prose
			}
			args = args[at+1:]
			if end := slices.IndexFunc(args, func(s string) bool {
				return slices.Contains([]string{
					"&&", "|", ">", "#",
					"--",
				}, s)
			}); end >= 0 {
				args = args[:end]
			}
			lines++
			root := (&app{}).root()
			sub, rest, err := root.Find(args)
			if err == nil {
				err = sub.ParseFlags(rest)
			}
			switch want := cmd.CommandPath(); {
			case err != nil:
				t.Errorf("%s: %q: %v", want, line, err)
			case cmd.HasParent() && sub.CommandPath() != want:
				t.Errorf("%s shows an example of %s: %q", want, sub.CommandPath(), line)
			case sub.ValidateArgs(sub.Flags().Args()) != nil && !strings.Contains(line, "--"):
				t.Errorf("%s: %q: wrong arguments", want, line)
			}
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit((&app{}).root())
	if lines < 20 {
		t.Errorf("only %d examples were found", lines)
	}
}

// TestPoliciesAreCompleted: every command that has --policy completes it.
func TestPoliciesAreCompleted(t *testing.T) {
	t.Parallel()
	for _, cmd := range (&app{}).root().Commands() {
		if cmd.Flags().Lookup("policy") == nil {
			continue
		}
		if _, ok := cmd.GetFlagCompletionFunc("policy"); !ok {
			t.Errorf("%s does not complete --policy", cmd.CommandPath())
		}
	}
}
