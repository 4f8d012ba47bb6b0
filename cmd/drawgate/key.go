package main

import (
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/config"
)

func (a *app) keyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make virtual keys for callers of the gateway, and credit prepaid budgets",
		Long: `Make virtual keys, which callers of the gateway show in place of the provider's key.

Keys of the file: "drawgate key new" makes a secret, and prints the line for the file. The file has only the SHA-256 of a key's secret, so it need
not be kept secret itself. Neither new nor hash reads or changes it: paste what they print under gateway.keys.

Keys of the store (gateway.keys_in_store): the other commands make and change them at a running gateway. A change is in force on all gateways within
a second.

Prepaid budgets: "drawgate key credit" adds to one in the store that --config or --store names, and "drawgate key credits" lists what was added.

To change the secret of a key without a lost call, in the file ("drawgate key rotate" does it in the store):

1. Make a new one with "drawgate key new", and add it to the key's list of secrets. Give the old one an end in the list: until: 2027-01-31T00:00:00Z
2. The gateway reads a changed file by itself. From then on both are valid.
3. When all gateways have read it, give the new secret to the callers.
4. After the end, remove the old one from the list.`,
	}
	cmd.AddCommand(a.keyNewCmd(), a.keyHashCmd(), a.keyListCmd(), a.keyCreateCmd(), a.keyChangeCmd(), a.keyRotateCmd(),
		a.keyOneCmd("disable", "Refuse all calls of a key in the store",
			"Refuse all calls of a virtual key in the store, on all gateways within a second.",
			(*client.Client).DisableKey),
		a.keyOneCmd("enable", "Let calls of a key in the store pass again",
			"Let calls of a virtual key in the store pass again.",
			(*client.Client).EnableKey),
		a.keyOneCmd("delete", "Remove a key from the store",
			"Remove a virtual key from the store. Its history stays. To refuse its calls for a time, disable it.",
			(*client.Client).DeleteKey),
		a.keyHistoryCmd(), a.keyCreditCmd(), a.keyCreditsCmd())
	return cmd
}

func (a *app) keyNewCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "new [NAME]",
		Short: "Make a random secret, and print it once",
		Long: `Make a random secret of 256 bits. It is printed once, with its SHA-256 and the lines for the file, and is stored nowhere: whoever loses it
needs a new one. NAME is the name of the key, as rules and the log have it.`,
		Example: `  drawgate key new alice
  drawgate key new alice --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: action(func(_ *cobra.Command, args []string) error {
			name := "NAME"
			if len(args) > 0 {
				name = args[0]
			}
			return a.newKey(name)
		}),
	}
}

// maxKeyName is the length of the longest name of a key that a file may have, in bytes.
const maxKeyName = 128

// madeKey is a new key as JSON.
type madeKey struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
	SHA256 string `json:"sha256"`
}

func (a *app) newKey(name string) error {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) || r == '"' || r == '\\' }
	if name == "" || len(name) > maxKeyName || strings.ContainsFunc(name, hidden) {
		return usage("the name of a key has 1 to %d bytes, and no quotes, backslashes or characters that cannot be seen",
			maxKeyName)
	}
	k := madeKey{Name: name, Secret: config.NewSecret()}
	var err error
	if k.SHA256, err = config.HashSecret(k.Secret); err != nil {
		return err
	}
	if a.json {
		a.printJSON(k)
		return nil
	}
	a.printf(`secret: %s
sha256: %s

The secret is not shown again: give it to the caller of the gateway, in place of the provider's key.

A new key needs this line in the file, under gateway.keys:
    - {name: "%s", sha256: "%[2]s"}
For a key that is there already, add it to the list of its secrets:
      secrets:
        - {sha256: "%[2]s"}
`, k.Secret, k.SHA256, k.Name)
	return nil
}

func (a *app) keyHashCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "hash",
		Short: "Print the SHA-256 of a secret, for the file",
		Long: `Read a secret from the standard input, and print its SHA-256 as the file has it (sha256). White space around the secret is not a part of it.
A secret has 16 to 4096 bytes; only a random one cannot be guessed from its SHA-256.`,
		Example: `  printf %s "$ALICE_KEY" | drawgate key hash`,
		Args:    noArgs,
		RunE:    action(func(cmd *cobra.Command, _ []string) error { return a.hashKey(cmd.InOrStdin()) }),
	}
}

// maxSecretText is how much of the standard input is read: more than a secret may have.
const maxSecretText = 1 << 16

func (a *app) hashKey(from io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(from, maxSecretText))
	if err != nil {
		return err
	}
	digits, err := config.HashSecret(string(text))
	if err != nil {
		return usage("%s", strings.TrimPrefix(err.Error(), "config: "))
	}
	if a.json {
		a.printJSON(struct {
			SHA256 string `json:"sha256"`
		}{digits})
		return nil
	}
	a.printf("%s\n", digits)
	return nil
}
