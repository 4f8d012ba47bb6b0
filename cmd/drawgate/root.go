package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/lambdaext"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/internal/similar"
)

// app is the state that all commands share.
type app struct {
	args   []string // the command line
	flags  config.Flags
	server string
	tenant string
	json   bool
	out    io.Writer
	errOut io.Writer
	lambda *lambdaext.Client // nil: this is no extension of AWS Lambda
}

// run runs the program and returns its exit code. args begins with the program's name.
func run(ctx context.Context, args []string) int {
	a := &app{args: args[1:], out: os.Stdout, errOut: os.Stderr}
	a.extend(args)
	root := a.root()
	root.SetArgs(a.args)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	e, ok := errors.AsType[*exitError](err)
	if !ok { // the commands return only exit errors, so this one is about the command line
		e = a.misread(exitUsage, err)
	}
	a.report(e, cmd.CommandPath())
	a.tellLambda(ctx, e)
	return e.code
}

// misread is the error of a command line that could not be parsed. It is printed as JSON if --json
// stands anywhere, also after the mistake.
func (a *app) misread(code int, err error) *exitError {
	for _, arg := range a.args {
		name, value, given := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			return &exitError{code, err}
		case name == "--json" && !given:
			a.json = true
		case name == "--json":
			a.json, _ = strconv.ParseBool(value)
		}
	}
	return &exitError{code, err}
}

const rootLong = `drawgate keeps any number of processes inside one quota.

It works on a store of buckets, which all commands share: a SQLite file, a Redis or Valkey server, a PostgreSQL database, or a DynamoDB table. Without any
configuration that is the user's own SQLite file, with a sample policy for trying things out:

  drawgate take                       # take one request; exit code 75 if the limit has none left
  drawgate run --wait 5m -- make all  # wait for units, hold them while the command runs
  drawgate serve                      # the same over HTTP, for other machines and languages

Policies come from a file (--config, DRAWGATE_CONFIG) or from environment variables such as RATE_LIMIT_PER_DAY. drawgate init writes a file to start
from, and drawgate validate checks what is configured.

`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "drawgate", Short: "Keep programs inside their quotas", Long: rootLong + exitHelp,
		SilenceErrors: true, SilenceUsage: true,
		Version: versionText(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return plainFlagError(err) })
	f := root.PersistentFlags()
	f.StringVar(&a.flags.Config, "config", "", "file with the policies (default $"+config.EnvConfig+")")
	f.StringVar(&a.flags.Rules, "rules", "", "file that contains only rules (default $"+config.EnvRules+")")
	f.StringVar(&a.flags.Store, "store", "",
		"store: sqlite:PATH, sqlite:///ABSOLUTE/PATH, redis://HOST:PORT/DB, redis+sentinel://HOSTS/MASTER/DB, redis+cluster://HOSTS (rediss with TLS; valkey is the same), postgres://USER@HOST/DATABASE or dynamodb://TABLE?region=REGION (default $"+config.EnvStore+")")
	f.StringVar(&a.server, "server", "",
		"ask a drawgate server at this URL instead of a store (default $"+envServer+", unless --store is given; its access token is $"+envToken+")")
	f.StringVar(&a.tenant, "tenant", "", "tenant whose buckets these are; tenants share nothing")
	f.BoolVar(&a.json, "json", false, "print JSON")
	commands := []*cobra.Command{
		a.takeCmd(), a.runCmd(), a.statusCmd(), a.topCmd(), a.explainCmd(), a.resetCmd(), a.pauseCmd(),
		a.unpauseCmd(), a.adjustCmd(), a.queueCmd(), a.validateCmd(), a.serveCmd(), a.gatewayCmd(), a.incidentsCmd(),
		a.auditCmd(), a.spendCmd(), a.simulateCmd(), a.policyCmd(), a.historyCmd(), a.planCmd(), a.boundCmd(),
		a.repairCmd(), a.storeCmd(), a.tableCmd(), a.initCmd(), a.keyCmd(),
		a.schemaCmd(), a.manCmd(), a.versionCmd(),
	}
	for _, cmd := range commands {
		if cmd.HasSubCommands() && !cmd.Runnable() {
			cmd.Args, cmd.DisableFlagsInUseLine = knownCommand, true
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	root.AddCommand(commands...)
	return root
}

// knownCommand refuses an argument that is no command of a group, such as "key disabel". By itself
// cobra prints the group's help, and succeeds.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), similar.Suggest(args[0], names))
}

// noArgs refuses arguments of a command that has none, and says how to write what was meant.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasSubCommands():
		return cobra.NoArgs(cmd, args)
	case isFile(args[0]) && cmd.InheritedFlags().Lookup("config") != nil:
		return fmt.Errorf("%s takes no argument: to name a file, write --config %s", cmd.CommandPath(), args[0])
	}
	return fmt.Errorf("%s takes no argument, but got %q; usage: %s", cmd.CommandPath(), args[0], cmd.UseLine())
}

// isFile reports whether an argument seems to be a configuration.
func isFile(arg string) bool {
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular() || slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(arg))
}

// action makes the function of a command, whose errors have exit codes.
func action(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := f(cmd, args)
		if err == nil {
			return nil
		}
		if _, ok := errors.AsType[*exitError](err); ok {
			return err
		}
		return &exitError{exitCode(err), err}
	}
}

// report prints why a command fails.
func (a *app) report(e *exitError, command string) {
	if e.err == nil {
		return
	}
	problems, warnings, _ := mistakes(e.err)
	if a.json {
		a.printJSON(errorAnswer{
			Error: text(e.err), ExitCode: e.code, Problems: notes(problems),
			Warnings: notes(warnings),
		})
		return
	}
	if len(problems) > 0 {
		fmt.Fprintf(a.errOut, "%v\ndrawgate: the configuration has %s; nothing was done\n",
			present.Escape(e.err.Error(), "\n"), apart(problems, warnings))
		return
	}
	fmt.Fprintf(a.errOut, "drawgate: %s\n", present.Escape(text(e.err), "\n\t"))
	if hint := advice(e.err); hint != "" {
		fmt.Fprintln(a.errOut, hint)
	}
	if e.code == exitUsage {
		fmt.Fprintln(a.errOut, "See "+command+" --help.")
	}
}

// text returns an error's text, without the name of a package, and without secrets.
func text(err error) string {
	s := err.Error()
	for _, name := range []string{"drawgate: ", "engine: ", "taskqueue: "} {
		s = strings.TrimPrefix(s, name)
	}
	return config.RedactURL(s)
}

// errorAnswer is an error as JSON.
type errorAnswer struct {
	Error    string `json:"error"`
	ExitCode int    `json:"exit_code"`
	Problems []note `json:"problems,omitempty"`
	Warnings []note `json:"warnings,omitempty"`
}
