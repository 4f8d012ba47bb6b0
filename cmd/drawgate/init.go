package main

import (
	"bytes"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/internal/similar"
)

//go:embed starter/*.yaml
var starterFiles embed.FS

// starterName is the name of the file, and what stands for it in the commands below.
const starterName = "drawgate.yaml"

// starter is a configuration file to start from. Its text is in the folder starter.
type starter struct {
	name  string
	about string
	set   []needed // variables without which it does not start
	start []string // commands
	try   []string // a first decision in another terminal, if the start goes on running
}

// needed is an environment variable that a file or a command reads.
type needed struct {
	name    string
	example string // "" is a random secret
	about   string
}

// takeAtServer asks the server that was just started.
const takeAtServer = "drawgate take --server http://" + defaultListen

var starters = []starter{
	{
		name: "llm", about: "programs call LLM providers through a gateway, within the provider's quota",
		set: []needed{
			{"OPENAI_API_KEY", "sk-…", "the provider's key"},
			{"GATEWAY_KEY", "", "what your programs show in its place; also in their terminal"},
		},
		start: []string{"drawgate gateway --config drawgate.yaml"},
		try: []string{
			`curl http://` + defaultGateway + `/openai/v1/chat/completions -H "Authorization: Bearer $GATEWAY_KEY"` +
				` -H 'Content-Type: application/json'` +
				` -d '{"model": "gpt-4.1-mini", "max_tokens": 8, "messages": [{"role": "user", "content": "Hello!"}]}'`,
		},
	},
	{
		name: "api", about: "an API, behind nginx, Caddy, Traefik or HAProxy, or in Python (FastAPI, Flask, Django)",
		start: []string{"drawgate serve --config drawgate.yaml"},
		try: []string{
			`curl -i -H 'X-Forwarded-Method: GET' -H 'X-Forwarded-Uri: /' -H 'X-Forwarded-For: 192.0.2.1' http://` +
				defaultListen + `/auth`,
		},
	},
	{
		name: "envoy", about: "an API behind Envoy, which asks over gRPC",
		start: []string{"drawgate serve --config drawgate.yaml"},
		try:   []string{takeAtServer + " --bucket ip/192.0.2.1 --bucket api/global"},
	},
	{
		name: "cron", about: "cron jobs and scripts share budgets, or run one at a time; no server",
		start: []string{
			"drawgate run --config drawgate.yaml --policy geocoder -n 1 -- echo it may run",
			"drawgate status --config drawgate.yaml",
		},
	},
	{
		name: "lambda", about: "functions of AWS Lambda share a quota in a DynamoDB table",
		set: []needed{{"AWS_REGION", "eu-central-1", "where the table is; with credentials as for other tools of AWS"}},
		start: []string{
			"drawgate table create --config drawgate.yaml",
			"drawgate serve --config drawgate.yaml",
		},
		try: []string{takeAtServer + " --policy gemini-2.5-flash"},
	},
	{
		name: "celery", about: "Celery's tasks wait for their turn, in all workers together",
		start: []string{"drawgate serve --config drawgate.yaml"},
		try:   []string{takeAtServer + " --policy tasks"},
	},
}

func (a *app) initCmd() *cobra.Command {
	var file string
	var force bool
	var from otherTool
	cmd := &cobra.Command{
		Use:   "init [WHAT]",
		Short: "Write a configuration file to start from",
		Long: `Write a short configuration file with comments, and print what starts it. Without WHAT, list the choices:

` + choices() + `
With --from litellm, WHAT is the configuration of LiteLLM's proxy, whose models, limits and budgets are converted. Keys and teams
are in LiteLLM's database: save what its API answers, and name the files with --keys and --teams.

  curl -H "Authorization: Bearer $LITELLM_MASTER_KEY" "$LITELLM/key/list?return_full_object=true&size=100" >keys.json
  curl -H "Authorization: Bearer $LITELLM_MASTER_KEY" "$LITELLM/team/list" >teams.json

Callers keep their keys: LiteLLM stores their SHA-256, and so does the file. Secrets of the configuration are not copied: the file
names variables, which have to be set. What is left out, or differs, is listed on standard error and at the end of the file, with its line.`,
		Example: `  drawgate init cron
  drawgate init api --output limits.yaml
  drawgate init envoy --output - | less
  drawgate init --from litellm config.yaml
  drawgate init --from litellm config.yaml --keys keys.json --teams teams.json --prices model_prices_and_context_window.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: action(func(_ *cobra.Command, args []string) error {
			if from.given() {
				return a.beginFrom(&from, args, file, force)
			}
			if len(args) == 0 {
				_, err := fmt.Fprintf(a.out, "drawgate init WHAT writes a configuration file to start from:\n\n%s", choices())
				return err
			}
			return a.begin(args[0], file, force)
		}),
	}
	for _, s := range starters {
		cmd.ValidArgs = append(cmd.ValidArgs, cobra.CompletionWithDesc(s.name, s.about))
	}
	cmd.Flags().StringVar(&file, "output", starterName, "file to write; - is the standard output")
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	from.flags(cmd.Flags())
	return cmd
}

// choices lists what there are files for, one in a line.
func choices() string {
	var b strings.Builder
	for _, s := range starters {
		fmt.Fprintf(&b, "  %-8s%s\n", s.name, s.about)
	}
	return b.String()
}

// suggestStarter completes the message about an unknown name: with the first choice that is
// described by that word, or else with the name that is similar.
func suggestStarter(what string, names []string) string {
	for _, s := range starters {
		for _, word := range strings.FieldsFunc(s.about, func(r rune) bool { return !unicode.IsLetter(r) }) {
			if strings.EqualFold(word, what) {
				return similar.Suggest(s.name, names)
			}
		}
	}
	return similar.Suggest(what, names)
}

// begin writes the file, and prints what to do with it.
func (a *app) begin(what, file string, force bool) error {
	if a.flags.Config != "" {
		return usage("init writes a file: write --output %s", a.flags.Config)
	}
	names := make([]string, 0, len(starters))
	for _, s := range starters {
		names = append(names, s.name)
	}
	i := slices.Index(names, what)
	if i < 0 {
		return usage("there is no file for %q%s", what, suggestStarter(what, names))
	}
	text, err := starterFiles.ReadFile("starter/" + what + ".yaml")
	if err != nil {
		return err
	}
	text = placed(text, file)
	if file == "-" {
		_, err := a.out.Write(text)
		return err
	}
	if err := write(file, text, force); err != nil {
		return err
	}
	_, err = fmt.Fprint(a.out, present.Escape("wrote "+file+"\n"+starters[i].next(file), "\n"))
	return err
}

// besideFile is the store of the files: a database next to them.
const besideFile = "store: sqlite:drawgate.db       # what is used, next to this file, "

// placed returns the text for a file of that name. A service may usually not write below /etc, so
// the database is in the folder of the packages then.
func placed(text []byte, file string) []byte {
	if path, err := filepath.Abs(file); err != nil || !strings.HasPrefix(path, "/etc/") {
		return text
	}
	return bytes.Replace(text, []byte(besideFile),
		[]byte("store: sqlite:///var/lib/drawgate/drawgate.db # what is used: a folder that the service may write to, "), 1)
}

// write writes a file. Only force replaces one.
func write(file string, text []byte, force bool) error {
	flag := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		flag = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(file, flag, 0o644) //nolint:gosec // it has no secrets, and a service reads it as another user
	if errors.Is(err, fs.ErrExist) {
		return usage("%s is there already, and was not changed: name another file with --output, or replace it with --force",
			file)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// next says what to do with a file: commands, each in a line that begins with two spaces.
func (s *starter) next(file string) string {
	var b strings.Builder
	for _, step := range []struct {
		title    string
		commands []string
	}{
		{"Set first", s.unset()},
		{"Check it", []string{"drawgate validate " + starterName}},
		{"Start it", s.start},
		{"Then, in another terminal", s.try},
	} {
		if len(step.commands) > 0 {
			fmt.Fprintf(&b, "\n%s:\n  %s\n", step.title, strings.Join(step.commands, "\n  "))
		}
	}
	return strings.ReplaceAll(b.String(), starterName, shellWord(file))
}

// unset returns commands that set what the environment does not have yet.
func (s *starter) unset() (commands []string) {
	for _, v := range s.set {
		if os.Getenv(v.name) != "" {
			continue
		}
		value := v.example
		if value == "" {
			value = rand.Text()
		}
		commands = append(commands, fmt.Sprintf("export %s=%s   # %s", v.name, value, v.about))
	}
	return commands
}

var plainWord = pattern.New(`^[\w./-]+$`)

// shellWord returns a file's name as a shell needs it. It is not taken for an option.
func shellWord(s string) string {
	if strings.HasPrefix(s, "-") {
		s = "./" + s
	}
	if plainWord().MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
