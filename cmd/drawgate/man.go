package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
			if err := writeMan(cmd.Root(), args[0]); err != nil {
				return &exitError{exitConfig, err}
			}
			a.printf("wrote the pages to %s\n", args[0])
			return nil
		}),
	}
}

// writeMan writes the pages of a command and of those below it. It is not done with cobra/doc,
// which takes texts for Markdown, and with what it needs makes the program half a megabyte larger.
func writeMan(cmd *cobra.Command, dir string) error {
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultHelpFlag()
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			if err := writeMan(c, dir); err != nil {
				return err
			}
		}
	}
	//nolint:gosec // everybody may read a manual page
	return os.WriteFile(filepath.Join(dir, manName(cmd)+".1"), []byte(manPage(cmd)), 0o644)
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the page of a command, for man(7). Two programs of a version write the same
// bytes.
func manPage(cmd *cobra.Command) string {
	var p page
	name := manName(cmd)
	version, _, _ := build()
	p.line(`.TH "%s" 1 "" "drawgate %s" "Drawgate"`, roff(strings.ToUpper(name)), roff(version))
	p.section("NAME")
	p.line(`%s \- %s`, roff(name), roff(cmd.Short))
	p.section("SYNOPSIS")
	if cmd.Runnable() {
		p.line(`%s`, roff(cmd.UseLine()))
	} else {
		p.line(`%s COMMAND`, roff(cmd.CommandPath()))
	}
	p.section("DESCRIPTION")
	p.text(cmd.Long)
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			p.line(".TP\n.B %s\n%s", roff(c.Name()), roff(c.Short))
		}
	}
	p.flags("OPTIONS", cmd.NonInheritedFlags())
	p.flags("GLOBAL OPTIONS", cmd.InheritedFlags())
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.text(cmd.Example)
	}
	if cmd.HasParent() {
		p.section("SEE ALSO")
		p.line(`\fB%s\fR(1)`, roff(manName(cmd.Parent())))
	}
	return p.String()
}

// page is a manual page that is being written.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) section(title string) { p.line(".SH %s", title) }

// text writes paragraphs. Lines that begin with a space are tables or examples, and stay as they
// are.
func (p *page) text(text string) {
	plain := false
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		line = strings.TrimRight(line, "\n")
		switch indented := strings.HasPrefix(line, " "); {
		case line == "":
			p.line(".sp")
			continue
		case indented && !plain:
			p.line(".nf")
			plain = true
		case !indented && plain:
			p.line(".fi")
			plain = false
		}
		p.line("%s", roff(line))
	}
	if plain {
		p.line(".fi")
	}
}

func (p *page) flags(title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	p.section(title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		names := `\fB` + roff("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			names = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + names
		}
		if value != "" {
			names += ` \fI` + roff(value) + `\fR`
		}
		if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
			usage += " (default " + f.DefValue + ")"
		}
		p.line(".TP\n%s\n%s", names, roff(usage))
	})
}

// roff writes a line so that nothing in it is a command.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
