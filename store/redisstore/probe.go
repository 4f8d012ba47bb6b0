package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

//go:embed probe.lua
var probeBody string

var probeScript = newScript(probeBody)

// probeKey is the key that is written to find out whether that is possible.
func (s *Store) probeKey() string { return s.prefix + ":%probe" }

// errDenied is why a server is not used: a command that a take needs is missing among the user's
// permissions. Found out before the first take, because a script that is stopped half way has spent
// what it wrote.
var errDenied = fmt.Errorf("%w: the Redis user may not run a command that every take needs: grant it (ACL SETUSER <user> +<command>)", ErrMisconfigured)

// probe runs each command that a take runs. denied says which ones the user may not run; wrong is
// what else the server reported: one that is full or only reads may be well again at the next call.
func (s *Store) probe(ctx context.Context, c rueidis.Client) (denied error, wrong string, err error) {
	run := func() rueidis.RedisResult {
		return c.Do(ctx, c.B().Evalsha().Sha1(probeScript.sha).Numkeys(1).Key(s.probeKey()).Build())
	}
	res := run()
	if unknownScript(&res) {
		if err := c.Do(ctx, c.B().ScriptLoad().Script(probeScript.body).Build()).Error(); err != nil {
			return nil, "", err
		}
		res = run()
	}
	list, err := res.AsStrSlice()
	if err != nil {
		return nil, "", err
	}
	var names []string
	why := ""
	for _, l := range list {
		name, text, _ := strings.Cut(l, ": ")
		switch {
		case !isDenied(text):
			wrong = text
		case !slices.Contains(names, name):
			names = append(names, name)
			why = strings.ReplaceAll(text, s.probeKey(), "<key>")
		}
	}
	if len(names) > 0 {
		denied = fmt.Errorf("%w: %s: the server says: %s", errDenied, strings.Join(names, ", "), why)
	}
	return denied, wrong, nil
}

// isDenied reports whether a server's error is about permissions.
func isDenied(text string) bool {
	return slices.ContainsFunc(permission[:], func(w string) bool { return strings.Contains(text, w) })
}

// Ping implements drawgate.Pinger: it runs every command that a take runs, since a server that only
// reads, or whose permissions fell short, cannot decide.
func (s *Store) Ping(ctx context.Context) error {
	c, err := s.begin(ctx, "ping")
	if err != nil {
		return err
	}
	defer s.end()
	denied, wrong, err := s.probe(ctx, c)
	switch {
	case err != nil:
		return failure("ping", err, []string{s.probeKey()})
	case denied != nil:
		return storeError("ping", denied)
	case wrong != "":
		return reported("ping", wrong, []string{s.probeKey()})
	}
	return nil
}
