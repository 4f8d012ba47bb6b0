package redisstore_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

// TestReplicasThatMayLag are warned of, unless the server waits for them.
//
// req: C12
func TestReplicasThatMayLag(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	host, port, _ := net.SplitHostPort(primary.Addr)
	redistest.Start(t, "--replicaof", host, port)
	c := client(t, primary)
	until(t, "the replica connects", func() bool {
		return strings.Contains(primary.Do("INFO", "replication"), "connected_slaves:1")
	})
	for _, set := range []struct {
		wait string
		want bool
	}{{"0", true}, {"1", false}} {
		if err := c.Do(t.Context(), c.B().ConfigSet().ParameterValue().ParameterValue("min-replicas-to-write",
			set.wait).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s := open(t, primary, &redisstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		err := s.Ping(t.Context()) // it may have to wait for the replica
		if got := strings.Contains(log.String(), "min-replicas-to-write"); got != set.want {
			t.Errorf("min-replicas-to-write %s: warned %v, want %v: %q, %v", set.wait, got, set.want, log.String(), err)
		}
	}
}

// TestClusterNodeIsRefused: takes of several buckets would fail there one by one. The error says
// what to write.
func TestClusterNodeIsRefused(t *testing.T) {
	t.Parallel()
	node := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-config-file",
		filepath.Join(t.TempDir(), "nodes.conf"))
	s := open(t, node, nil)
	err := s.Ping(t.Context())
	wantFault(t, "a node of a cluster", err, store.FaultConfiguration)
	if !errors.Is(err, redisstore.ErrMisconfigured) || !strings.Contains(err.Error(),
		"redis+cluster://") {
		t.Errorf("got %v", err)
	}
}

// TestSettingsAreWarnedOfOnce: not again with each take of a server that cannot be used yet, and
// not for each part of its settings.
func TestSettingsAreWarnedOfOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "blind", "on", ">secret", "~*", "+@all", "-info")
	for _, c := range []struct{ user, want string }{
		{"", "does not log its writes"},
		{"blind:secret@", "settings cannot be read"},
	} {
		var log bytes.Buffer
		url := strings.Replace(server.URL(), "redis://", "redis://"+c.user, 1)
		s := openURL(t, url, &redisstore.Options{
			Prefix: prefix(), RequireMark: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		for range 5 {
			if err := s.Ping(t.Context()); !errors.Is(err, redisstore.ErrLost) {
				t.Errorf("%q: got %v, want ErrLost", c.user, err)
			}
		}
		if n := strings.Count(log.String(), c.want); n != 1 {
			t.Errorf("%q: %d warnings, want 1:\n%s", c.user, n, log.String())
		}
	}
}
