package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/pgstore"
	"github.com/drawgate/drawgate/store/redisstore"
)

func (d *decoder) store(e entry) string {
	text, ok := d.text(e)
	if !ok {
		return ""
	}
	if hint, err := checkStore(text); err != nil {
		d.problem(spanOf(e.value), hint, "%s", err)
		return ""
	}
	return text
}

func (d *decoder) prefix(e entry) string {
	text, ok := d.text(e)
	if !ok {
		return ""
	}
	if err := checkPrefix(text); err != nil {
		d.problem(spanOf(e.value), "", "%s", err)
		return ""
	}
	return text
}

var prefixes = pattern.New(`^[A-Za-z0-9._:/-]{1,64}$`)

func checkPrefix(text string) error {
	if !prefixes().MatchString(text) {
		return fmt.Errorf("prefix %s is not 1 to 64 letters, digits, '.', '-', '_', ':' or '/'", shorten(text))
	}
	return nil
}

// checkStore returns an error for a store URL that this version does not support.
func checkStore(url string) (hint string, err error) {
	scheme, rest, ok := strings.Cut(url, ":")
	switch {
	case !ok:
		return "such as memory:, sqlite:///var/lib/drawgate/state.db, redis://localhost:6379/0, postgres://localhost/quotas or dynamodb://quotas?region=eu-central-1",
			fmt.Errorf("store %s is not a URL", shorten(url))
	case scheme == "memory":
		if rest != "" {
			return "write memory:", fmt.Errorf("store %s has something after \"memory:\"", shorten(url))
		}
	case scheme == "sqlite":
		if _, ok := SQLitePath(url); !ok {
			return "write sqlite:///absolute/path or sqlite:relative/path",
				fmt.Errorf("store %s does not name a file", shorten(url))
		}
	case IsRedis(url):
		if host := strings.TrimPrefix(rest, "//"); host == rest || host == "" {
			return "such as redis://localhost:6379/0", fmt.Errorf("store %s does not name a server", shorten(url))
		}
		if err := redisstore.CheckURL(url); err != nil {
			return "docs/redis.md lists all forms",
				fmt.Errorf("store %s cannot be used: %w", shorten(RedactURL(url)), err)
		}
	case scheme == "postgres", scheme == "postgresql":
		if err := pgstore.CheckURL(url); err != nil {
			return "such as " + pgstore.Form, fmt.Errorf("store %s cannot be used: %w", shorten(RedactURL(url)), err)
		}
	case scheme == "dynamodb":
		if _, err := dynamostore.ParseURL(url); err != nil {
			if e, ok := errors.AsType[*dynamostore.URLError](err); ok {
				return e.Hint, fmt.Errorf("store %s %s", shorten(url), e.Reason)
			}
			return "", err
		}
	default:
		hint, meant := didYouMean(scheme, []string{
			"memory", "sqlite", "redis", "rediss", "valkey", "postgres",
			"postgresql", "dynamodb",
		})
		if meant != "" {
			hint = fmt.Sprintf("did you mean %q?", meant+":")
		}
		return hint, fmt.Errorf("store %s is not of a known kind (memory:, sqlite:, redis://, redis+sentinel://, redis+cluster://, the same with rediss or valkey, postgres://, or dynamodb://)", shorten(url))
	}
	return "", nil
}

// RedisFunctions returns the library that a store on Redis with functions=use calls.
func RedisFunctions() string { return redisstore.Library() }

// IsRedis reports whether a store URL names servers of Redis or Valkey.
func IsRedis(url string) bool { return redisstore.IsURL(url) && !strings.HasPrefix(url, "unix:") }

// IsPostgres reports whether a store URL names a database of PostgreSQL.
func IsPostgres(url string) bool { return pgstore.IsURL(url) }

// SQLitePath returns the path in a store URL of the form sqlite:///absolute/path or
// sqlite:relative/path; false for any other. The path is taken as it is: nothing in it is escaped.
func SQLitePath(store string) (path string, ok bool) {
	path, ok = strings.CutPrefix(store, "sqlite:")
	if rest, found := strings.CutPrefix(path, "//"); found {
		// With two slashes a host would follow; only the empty one is allowed.
		path, ok = rest, ok && strings.HasPrefix(rest, "/")
	}
	return path, ok && path != ""
}
