package main

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/config"
)

// attributeNames are the names of --attr that need no prefix.
var attributeNames = []string{"method", "path", "host", "route", "ip", "user", "class"}

// attributes reads --attr.
func attributes(list []string) (*api.Attributes, error) {
	at := &api.Attributes{Headers: map[string]string{}, Attrs: map[string]string{}}
	fields := []*string{&at.Method, &at.Path, &at.Host, &at.Route, &at.IP, &at.User, &at.Class}
	given := map[string]bool{}
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usage("--attr %q is not of the form NAME=VALUE, such as path=/v1/x", text)
		}
		if given[name] {
			return nil, usage("--attr %s is given twice", name)
		}
		given[name] = true
		if i := slices.Index(attributeNames, name); i >= 0 {
			*fields[i] = value
			continue
		}
		kind, part, _ := strings.Cut(name, ".")
		switch {
		case kind == "headers" && part != "":
			at.Headers[part] = value
		case kind == "attrs" && part != "":
			at.Attrs[part] = value
		default:
			return nil, usage("--attr %s: the names are %s, headers.NAME for a header, and attrs.NAME for an attribute of your own", name, strings.Join(attributeNames, ", "))
		}
	}
	return at, nil
}

// explainByRules prints which rules match a request, and what the buckets that they choose would
// answer. The buckets are those of a server, or those of the configured store.
func (a *app) explainByRules(cmd *cobra.Command, f *askFlags, attrs []string) error {
	at, err := attributes(attrs)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("policy") || cmd.Flags().Changed("key") {
		return usage("give either --attr, so that the rules choose, or --policy and --key")
	}
	costs, err := f.cost(cmd.Flags().Changed("requests"))
	if err != nil {
		return err
	}
	q := api.ExplainRequest{Bucket: api.Bucket{Costs: costsOf(costs)}, Attributes: at, Priority: f.priority}
	if a.serverURL() == "" {
		return a.explainHere(cmd, q)
	}
	if a.tenant != "" {
		return usage("give either --attr or --tenant: a server's rules say whose buckets they choose")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	w, err := c.Explain(cmd.Context(), q)
	return a.explanation(&w, err)
}

// explainHere asks a server inside this process, so that the answer is that of drawgate serve.
func (a *app) explainHere(cmd *cobra.Command, q api.ExplainRequest) error {
	s, err := a.resolveLimits(a.flags)
	if err != nil {
		return err
	}
	if s.empty {
		a.answer(s.allowedOff())
		return nil
	}
	a.tell(&s)
	if s.built {
		a.warnf("no rules are in force: %s", noFile)
	}
	log := slog.New(slog.NewTextHandler(a.errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))
	store, err := a.lookAt(&s, log)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // nothing was changed
	rules, err := a.inProcess(&s, store, log)
	if err != nil {
		return err
	}
	a.caution(&s)
	c, err := client.New("http://drawgate", &client.Options{HTTPClient: &http.Client{Transport: rules}})
	if err != nil {
		return err
	}
	w, err := c.Explain(cmd.Context(), q)
	result := a.explanation(&w, err)
	if err == nil && !a.json {
		a.printf("Store: %s.\n", config.RedactURL(s.Store))
	}
	return result
}
