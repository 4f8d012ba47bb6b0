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

var probeScript = inLibrary("probe", func() string { return probeBody })

// probeKey is the key that is written to test whether writing is possible, on a server that is no
// cluster.
func (s *Store) probeKey() string { return s.prefix + ":%probe" }

// errDenied is the error if the user lacks permission for a command that a take needs. This is
// found out before the first take, because a script that stops half way has already spent what it
// wrote.
var errDenied = fmt.Errorf("%w: the Redis user is not allowed to run a command that every take needs: grant it (ACL SETUSER <user> +<command>)", ErrMisconfigured)

// probe runs each command that a take runs. denied lists the commands that the user is not allowed
// to run. wrong is any other error of the server: if it is full or read-only, it may recover by the
// next call.
func (s *Store) probe(ctx context.Context, c rueidis.Client, key string) (denied error, wrong string, err error) {
	res := s.runScript(ctx, c, probeScript(), key)
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
			why = strings.ReplaceAll(text, key, "<key>")
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

// Ping implements store.Pinger. It runs every command that a take runs, because a server that is
// read-only or lacks permissions cannot decide.
func (s *Store) Ping(ctx context.Context) error {
	c, err := s.begin(ctx, "ping")
	if err != nil {
		return err
	}
	defer s.end()
	if s.cluster {
		return s.pingCluster(ctx, c)
	}
	return s.pingServer(ctx, c, s.probeKey(), &s.mark)
}

func (s *Store) pingServer(ctx context.Context, c rueidis.Client, key string, m *marker) error {
	if err := s.waitForMark(ctx, c, m); err != nil {
		return failure("ping", err, []string{m.key})
	}
	denied, wrong, err := s.probe(ctx, c, key)
	switch {
	case err != nil:
		return failure("ping", err, []string{key})
	case denied != nil:
		return storeError("ping", denied)
	case wrong != "":
		return reported("ping", wrong, []string{key})
	}
	return nil
}
