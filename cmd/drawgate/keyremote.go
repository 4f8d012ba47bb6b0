package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/internal/present"
)

// keysAtServer says where the commands about keys of the store ask.
const keysAtServer = "It asks a server that runs the gateway (--server, or $" + envServer + ": its address for administrators), with an access token\n" +
	"of the role admin ($" + envToken + ")."

// askKeys sends a request about keys to the server.
func (a *app) askKeys(cmd *cobra.Command, f func(context.Context, *client.Client) error) error {
	if a.serverURL() == "" {
		return usage("name the address for administrators of a server that runs the gateway: --server http://127.0.0.1:%s", adminPort)
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	err = f(cmd.Context(), c)
	if _, ok := errors.AsType[*exitError](err); ok { // of the command line
		return err
	}
	return adminError(err)
}

// keySettings are the names of keySettingFlags.
var keySettings = []string{
	"team", "user", "class", "priority", "models", "others", "paths", "addresses", "expires",
	"limits",
}

// keySettingFlags are settings of a key as flags.
type keySettingFlags struct {
	s       api.KeySettings
	expires string
	limits  []string
}

func (f *keySettingFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.s.Team, "team", "", `what rules see: attr("team")`)
	flags.StringVar(&f.s.User, "user", "", "what rules see: user")
	flags.StringVar(&f.s.Class, "class", "", "what rules see: class")
	flags.IntVar(&f.s.Priority, "priority", 0, "of its calls, and the highest that they may have: 0 to 9")
	flags.StringSliceVar(&f.s.Models, "models", nil, "what it may use: UPSTREAM/MODEL, with * at the end, or an alias (default everything)")
	flags.StringSliceVar(&f.s.Others, "others", nil, "which of the upstreams' others it may use: UPSTREAM/PATH, with * at the end (default all)")
	flags.StringSliceVar(&f.s.Paths, "paths", nil, "which calls it may make: UPSTREAM/PATH, with * at the end (default all)")
	flags.StringSliceVar(&f.s.Addresses, "addresses", nil, "networks from which it may be used (default all)")
	flags.StringSliceVar(&f.limits, "limits", nil, "amounts of its own, in the limit's unit (usd_micros: 50_000_000 is $50): POLICY/LIMIT=AMOUNT, in place of those that a rule or the policy gives it (default none)")
	flags.StringVar(&f.expires, "expires", "", "it is valid before this instant, such as 2027-01-31T00:00:00Z; never: it has no end")
}

// settings returns those of a key with what the flags say that were given.
func (f *keySettingFlags) settings(flags *pflag.FlagSet, s api.KeySettings) (api.KeySettings, error) {
	for name, set := range map[string]func(){
		"team": func() { s.Team = f.s.Team }, "user": func() { s.User = f.s.User },
		"class":    func() { s.Class = f.s.Class },
		"priority": func() { s.Priority = f.s.Priority }, "models": func() { s.Models = f.s.Models },
		"others": func() { s.Others = f.s.Others }, "paths": func() { s.Paths = f.s.Paths },
		"addresses": func() { s.Addresses = f.s.Addresses },
	} {
		if flags.Changed(name) {
			set()
		}
	}
	switch {
	case !flags.Changed("expires"):
	case f.expires == "never":
		s.Expires = nil
	default:
		at, err := time.Parse(time.RFC3339, f.expires)
		if err != nil {
			return s, usage("--expires %q is not an instant such as 2027-01-31T00:00:00Z, or never", f.expires)
		}
		s.Expires = &at
	}
	if flags.Changed("limits") {
		var err error
		if s.Limits, err = limitsOf(f.limits); err != nil {
			return s, err
		}
	}
	return s, nil
}

// limitsOf reads amounts such as per-key/budget=50_000_000.
func limitsOf(list []string) (map[string]map[string]int64, error) {
	limits := map[string]map[string]int64{}
	for _, text := range list {
		name, amount, _ := strings.Cut(text, "=")
		i := strings.LastIndex(name, "/")
		n, err := strconv.ParseInt(strings.ReplaceAll(amount, "_", ""), 10, 64)
		if err != nil || i < 0 {
			return nil, usage("--limits %q is not of the form POLICY/LIMIT=AMOUNT, such as per-key/budget=50_000_000; the amount is a whole number of the limit's unit, of usd_micros millionths of a dollar", text)
		}
		policy, limit := name[:i], name[i+1:]
		if _, twice := limits[policy][limit]; twice {
			return nil, usage("--limits names %s twice", name)
		}
		if limits[policy] == nil {
			limits[policy] = map[string]int64{}
		}
		limits[policy][limit] = n
	}
	return limits, nil
}

func (a *app) keyCreateCmd() *cobra.Command {
	var f keySettingFlags
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key in the store, and print its secret once",
		Long: `Make a virtual key in the store (gateway.keys_in_store), which is in force on all gateways within a second. Its secret is printed once, and
stored nowhere. ` + keysAtServer,
		Example: `  drawgate key create alice --server http://127.0.0.1:7879 --team red --models 'openai/gpt-4.1*'`,
		Args:    cobra.ExactArgs(1),
	}
	f.add(cmd.Flags())
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		s, err := f.settings(cmd.Flags(), api.KeySettings{})
		if err != nil {
			return err
		}
		if s.Expires != nil && !s.Expires.After(time.Now()) {
			return usage("--expires %q is over: the key would never be valid", f.expires)
		}
		return a.askKeys(cmd, func(ctx context.Context, c *client.Client) error {
			k, err := c.CreateKey(ctx, api.CreateKeyRequest{Name: args[0], KeySettings: s})
			if err == nil {
				a.printSecret(&k)
			}
			return err
		})
	})
	return cmd
}

// printSecret shows a secret that was just made.
func (a *app) printSecret(k *api.KeyWithSecret) {
	if a.json {
		a.printJSON(k)
		return
	}
	a.printf("secret: %s\n\nThe secret is not shown again: give it to the caller of the gateway, in place of the provider's key. It is valid on all gateways within a second.\n", k.Secret)
	for _, s := range k.Secrets {
		if s.Until != nil && s.Until.After(time.Now()) {
			a.printf("A secret of %s is valid until %s.\n", present.Instant(s.Made), present.Instant(*s.Until))
		}
	}
}

func (a *app) keyChangeCmd() *cobra.Command {
	var f keySettingFlags
	cmd := &cobra.Command{
		Use:   "change NAME",
		Short: "Change settings of a key in the store",
		Long: `Change settings of a virtual key in the store: those whose flags are given. Nothing is changed if somebody else changes the key at the same time.
` + keysAtServer,
		Example: `  drawgate key change alice --server http://127.0.0.1:7879 --models openai/gpt-4.1-mini --expires 2027-01-31T00:00:00Z`,
		Args:    cobra.ExactArgs(1),
	}
	f.add(cmd.Flags())
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if !slices.ContainsFunc(keySettings, cmd.Flags().Changed) {
			return usage("say what to change, by one of these flags: --%s", strings.Join(keySettings, ", --"))
		}
		return a.askKeys(cmd, func(ctx context.Context, c *client.Client) error {
			k, err := c.VirtualKey(ctx, args[0])
			if err != nil {
				return err
			}
			q := api.ChangeKeyRequest{Version: k.Version}
			if q.KeySettings, err = f.settings(cmd.Flags(), k.KeySettings); err != nil {
				return err
			}
			k, err = c.ChangeKey(ctx, args[0], q)
			return a.printKeys(err, k)
		})
	})
	return cmd
}

func (a *app) keyRotateCmd() *cobra.Command {
	var until string
	var keep time.Duration
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Give a key in the store another secret, and print it once",
		Long: `Give a virtual key in the store another secret, which is valid on all gateways within a second. The secrets so far are valid for the time that is
given, so that callers can change theirs without a lost call. ` + keysAtServer,
		Example: `  drawgate key rotate alice --server http://127.0.0.1:7879 --keep 24h
  drawgate key rotate alice --server http://127.0.0.1:7879 --keep 0s   # the old one was stolen`,
		Args: cobra.ExactArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("keep") == (until != "") || keep < 0 {
				return usage("say how long the secrets so far are valid, by one of these flags: --keep 24h (0s ends them now), or --until 2027-01-31T00:00:00Z")
			}
			end := time.Now().Add(keep)
			if until != "" {
				var err error
				if end, err = time.Parse(time.RFC3339, until); err != nil {
					return usage("--until %q is not an instant such as 2027-01-31T00:00:00Z", until)
				}
			}
			return a.askKeys(cmd, func(ctx context.Context, c *client.Client) error {
				k, err := c.RotateKey(ctx, args[0], end)
				if err == nil {
					a.printSecret(&k)
				}
				return err
			})
		}),
	}
	durationVar(cmd, &keep, "keep", 0, "how long the secrets so far are valid, such as 24h; 0s ends them now. This or --until is required")
	cmd.Flags().StringVar(&until, "until", "", "before which instant they are valid, instead of --keep; such as 2027-01-31T00:00:00Z")
	return cmd
}

// keyOneCmd makes a command that does one thing with one key.
func (a *app) keyOneCmd(verb, short, long string,
	do func(*client.Client, context.Context, string) (api.Key, error),
) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " NAME",
		Short:   short,
		Long:    long + " " + keysAtServer,
		Example: "  drawgate key " + verb + " alice --server http://127.0.0.1:7879",
		Args:    cobra.ExactArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return a.askKeys(cmd, func(ctx context.Context, c *client.Client) error {
				k, err := do(c, ctx, args[0])
				if err == nil && verb == "delete" && !a.json {
					a.printf("deleted:\n")
				}
				return a.printKeys(err, k)
			})
		}),
	}
}

func (a *app) keyListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the keys in the store",
		Long:    "List the virtual keys in the store, by their names. Those of the file are not among them. " + keysAtServer,
		Example: `  drawgate key list --server http://127.0.0.1:7879`,
		Args:    noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			return a.askKeys(cmd, func(ctx context.Context, c *client.Client) error {
				list, err := c.VirtualKeys(ctx)
				if err == nil && a.json {
					a.printJSON(api.KeysAnswer{Keys: list})
					return nil
				}
				return a.printKeys(err, list...)
			})
		}),
	}
}

// printKeys shows keys, unless there is an error.
func (a *app) printKeys(err error, list ...api.Key) error {
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(list[0])
	} else {
		present.WriteKeys(a.out, list, time.Now())
	}
	return nil
}

func (a *app) keyHistoryCmd() *cobra.Command {
	last := api.DefaultKeyEvents
	cmd := &cobra.Command{
		Use:   "history [NAME]",
		Short: "Show who changed which key in the store",
		Long: `Show the latest changes of virtual keys in the store, the newest first: of one, or of all. The store keeps about 10,000 of them, those of deleted
keys included. ` + keysAtServer,
		Example: `  drawgate key history alice --server http://127.0.0.1:7879`,
		Args:    cobra.MaximumNArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if last < 1 || last > api.MaxKeyEvents {
				return usage("--last %d is not between 1 and %d", last, api.MaxKeyEvents)
			}
			return a.askKeys(cmd, func(ctx context.Context, c *client.Client) error {
				list, err := c.KeyEvents(ctx, strings.Join(args, ""), last)
				switch {
				case err != nil:
				case a.json:
					a.printJSON(api.KeyEventsAnswer{Events: list})
				default:
					present.WriteKeyEvents(a.out, list)
				}
				return err
			})
		}),
	}
	cmd.Flags().IntVar(&last, "last", last, "how many changes")
	return cmd
}
