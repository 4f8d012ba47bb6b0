package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
)

func (a *app) validateCmd() *cobra.Command {
	var show bool
	var process int
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check the configuration: a file, and the environment",
		Long: `Check a file (default: --config, $` + config.EnvConfig + `) together with the environment variables, as the other commands would read them. All mistakes
are reported at once, each with its position. Warnings point out what is allowed but seldom intended.

Notes print relative paths in their absolute form; they are no mistakes. A path in a file is relative to the file's folder. So is a path in a variable, or, without a
file, relative to the state folder, $XDG_STATE_HOME/drawgate or ~/.local/state/drawgate. A path in a flag is relative to the working directory. Other
commands print the paths of variables and flags on standard error.

The exit code is 78 if there is a mistake. Nothing is opened, so a store that cannot be reached is not a mistake.`,
		Example: `  drawgate validate drawgate.yaml
  RATE_LIMIT_PER_DAY=500 drawgate validate --settings`,
		Args: cobra.MaximumNArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("process") {
				if err := takeEnvironment(process); err != nil {
					return err
				}
			}
			return a.validate(args, show)
		}),
	}
	cmd.Flags().BoolVar(&show, "settings", false, "also print every setting, and where it comes from")
	cmd.Flags().IntVar(&process, "process", 0,
		"take the environment of the running process with this `PID`, as a reload of a server does (Linux only)")
	return cmd
}

// takeEnvironment replaces the environment by the one that a process was started with.
func takeEnvironment(process int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", process))
	if err != nil {
		return fmt.Errorf("the environment of process %d is not known: %w", process, err)
	}
	os.Clearenv()
	for line := range strings.SplitSeq(string(text), "\x00") {
		if name, value, ok := strings.Cut(line, "="); ok && name != "" {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// verdict is the result of validate as JSON.
type verdict struct {
	Valid    bool      `json:"valid"`
	Problems []note    `json:"problems,omitempty"`
	Warnings []note    `json:"warnings,omitempty"`
	Store    string    `json:"store,omitempty"`
	Policies []string  `json:"policies,omitempty"`
	Paths    []setting `json:"paths,omitempty"` // relative paths, made absolute
	Settings []setting `json:"settings,omitempty"`
}

type setting struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	From    string `json:"from"`
}

func (a *app) validate(args []string, show bool) error {
	flags := a.flags
	if len(args) > 0 {
		flags.Config = args[0]
	}
	s, err := a.resolve(flags)
	var envoy envoyFiles
	if err == nil {
		envoy, err = checkEnvoy(s.Config)
	}
	if problems, warnings, ok := mistakes(err); ok {
		if a.json {
			a.printJSON(verdict{Problems: notes(problems), Warnings: notes(warnings)})
		} else {
			a.printf("%v\n%s\n", err, apart(problems, warnings))
		}
		return done(exitConfig)
	} else if err != nil {
		return err
	}
	warnings := slices.Concat(s.Warnings, envoy.skipped)
	v := verdict{Valid: true, Warnings: notes(warnings), Store: config.RedactURL(s.Store), Policies: s.configured()}
	for _, r := range s.RelativePaths() {
		v.Paths = append(v.Paths, setting{r.Setting, r.Value, r.From})
	}
	if show {
		for _, o := range s.Explain() {
			v.Settings = append(v.Settings, setting{o.Setting, o.Value, o.From})
		}
	}
	if a.json {
		a.printJSON(v)
		return nil
	}
	for _, w := range warnings {
		a.printf("warning: %v\n", w)
	}
	for _, o := range v.Paths {
		a.printf("note: relative path of %s: %s  # %s\n", o.Setting, o.Value, o.From)
	}
	for _, o := range v.Settings {
		a.printf("%s: %s  # %s\n", o.Setting, o.Value, o.From)
	}
	a.printf("valid: store %s; policies %s\n", v.Store, policyText(&s, envoy.domains))
	return nil
}

// policyText lists the policies.
func policyText(s *settings, domains []string) string {
	text := cmp.Or(strings.Join(s.configured(), ", "), "none")
	switch {
	case s.empty || s.Off:
		text += ": limits are switched off"
	case domains != nil:
		text += "; Envoy's domains " + strings.Join(domains, ", ")
	}
	return text
}

func (a *app) schemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of the configuration file",
		Long:    "Print the JSON Schema of the configuration file, which editors use to complete and check it.",
		Example: `  drawgate schema > drawgate.schema.json`,
		Args:    noArgs,
		RunE: action(func(*cobra.Command, []string) error {
			_, err := a.out.Write(config.Schema())
			return err
		}),
	}
}
