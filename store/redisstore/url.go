package redisstore

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/store"
)

// topology is how many servers a store consists of, and how they are found.
type topology uint8

const (
	single   topology = iota // one server
	sentinel                 // the server that Sentinels name
	cluster                  // the nodes of a cluster
)

// schemes are those of a URL, with the scheme that a URL of one server with the same security has.
var schemes = map[string]struct {
	kind topology
	base string
}{
	"redis": {single, "redis"}, "rediss": {single, "rediss"},
	"valkey": {single, "redis"}, "valkeys": {single, "rediss"}, "unix": {single, "unix"},
	"redis+sentinel": {sentinel, "redis"}, "rediss+sentinel": {sentinel, "rediss"},
	"valkey+sentinel": {sentinel, "redis"}, "valkeys+sentinel": {sentinel, "rediss"},
	"redis+cluster": {cluster, "redis"}, "rediss+cluster": {cluster, "rediss"},
	"valkey+cluster": {cluster, "redis"}, "valkeys+cluster": {cluster, "rediss"},
}

// What to write, in errors. They never repeat a part of the URL: it may be one of the password.
const (
	singleForm   = "redis://user:password@host:port/db"
	sentinelForm = "redis+sentinel://user:password@host1:26379,host2:26379/MASTER/db"
	clusterForm  = "redis+cluster://user:password@host1:6379,host2:6379"
)

// parameters are those of a URL that have an effect.
var parameters = []string{"db", "dial_timeout", "write_timeout", "protocol", "client_name", "skip_verify", "functions"}

// sentinelParameters are those that a URL of Sentinels has in addition.
var sentinelParameters = []string{"sentinel_user", "sentinel_password"}

// otherServers are parameters by which other programs name further servers, or a Sentinel's master.
var otherServers = []string{"addr", "master_set", "master_name", "sentinel_master_id"}

// CheckURL reports whether [Open] accepts a URL, without connecting. The error is
// [store.ErrInvalid], and never shows a password.
func CheckURL(serverURL string) error {
	_, _, err := parse(serverURL)
	return err
}

// IsURL reports whether a URL has a scheme of this package. Only [CheckURL] says whether the rest
// is right.
func IsURL(serverURL string) bool {
	scheme, _, _ := strings.Cut(serverURL, ":")
	_, ok := schemes[scheme]
	return ok
}

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: redisstore: the URL "+format, append([]any{store.ErrInvalid}, args...)...)
}

func parse(text string) (o rueidis.ClientOption, kind topology, err error) {
	scheme, rest, ok := strings.Cut(text, "://")
	s, known := schemes[scheme]
	if !ok || !known {
		return o, 0, wrong("is not of the form %s, %s or %s", singleForm, sentinelForm, clusterForm)
	}
	u, err := split(rest)
	if err != nil {
		return o, 0, err
	}
	if err := u.checkParameters(s.kind); err != nil {
		return o, 0, err
	}
	switch s.kind {
	case single:
		if len(u.hosts) > 1 {
			return o, 0, wrong("names several servers: write %s for a cluster, %s for Sentinels, or one server",
				clusterForm, sentinelForm)
		}
	case sentinel:
		o.Sentinel.MasterSet, err = u.master()
	case cluster:
		if db := cmp.Or(u.query.Get("db"), strings.TrimPrefix(u.path, "/"), "0"); db != "0" {
			err = wrong("names a database, and a cluster has only database 0: leave it out; two programs that " +
				"share a cluster differ in their prefixes")
		}
		u.path = ""
	}
	if err != nil {
		return o, 0, err
	}
	master := o.Sentinel.MasterSet
	if o, err = u.options(s.base); err != nil {
		return o, 0, err
	}
	if s.kind == single {
		return o, single, nil
	}
	o.Sentinel.MasterSet = master
	return o, s.kind, u.list(&o, s.kind)
}

// parts are those of a URL, after its scheme.
type parts struct {
	user  string // with the "@"
	hosts []string
	path  string // with the "/"
	raw   string // the query
	query url.Values
}

func split(rest string) (*parts, error) {
	u := &parts{}
	rest, u.raw, _ = strings.Cut(rest, "?")
	authority, path, found := strings.Cut(rest, "/")
	if found {
		u.path = "/" + path
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		u.user, authority = authority[:i+1], authority[i+1:]
	}
	u.hosts = strings.Split(authority, ",")
	var err error
	u.query, err = url.ParseQuery(u.raw)
	switch {
	case strings.Contains(u.raw, "@"): // the parameters may be a part of the password
		return nil, wrong(`has an "@" behind its first "?": in a password, write "?" as %%3F, and elsewhere "@" as %%40`)
	case strings.Contains(rest, "#") || strings.Contains(u.raw, "#"):
		return nil, wrong(`has a "#": write it as %%23`)
	case strings.Contains(u.path, "@"):
		return nil, wrong(`has an "@" behind a "/": in a password, write "/" as %%2F`)
	case err != nil:
		return nil, wrong("has parameters that cannot be read: write ?name=value&name=value")
	}
	return u, nil
}

func (u *parts) checkParameters(kind topology) error {
	known := parameters
	if kind == sentinel {
		known = slices.Concat(parameters, sentinelParameters)
	}
	for _, name := range slices.Sorted(maps.Keys(u.query)) {
		switch {
		case slices.Contains(otherServers, name):
			return wrong("has the parameter %q: servers and a Sentinel's master are named in front of the \"?\": "+
				"write %s, or %s for a cluster", name, sentinelForm, clusterForm)
		case !slices.Contains(known, name):
			return wrong("has an unknown parameter %q (known: %s)", name, strings.Join(known, ", "))
		case len(u.query[name]) > 1:
			return wrong("has the parameter %q twice", name)
		case name == "functions" && functionsNamed[u.query.Get(name)] == CallScript:
			return wrong("has functions that are neither load nor use: write functions=load if programs may load " +
				"the library, functions=use if somebody loads it by hand, or leave it out")
		}
	}
	return nil
}

// master takes the master's name from the path, and leaves the database there.
func (u *parts) master() (string, error) {
	name, db, _ := strings.Cut(strings.TrimPrefix(u.path, "/"), "/")
	u.path = ""
	if db != "" {
		u.path = "/" + db
	}
	name, err := url.PathUnescape(name)
	if err != nil || name == "" {
		return "", wrong("does not name the Sentinels' master: write %s", sentinelForm)
	}
	if _, err := strconv.Atoi(name); err == nil && db == "" {
		return "", wrong("has a number where the Sentinels' master is named: write %s", sentinelForm)
	}
	return name, nil
}

// options reads the URL as one of its first server.
func (u *parts) options(base string) (rueidis.ClientOption, error) {
	text := base + "://" + u.user + u.hosts[0] + u.path
	if u.raw != "" {
		text += "?" + u.raw
	}
	for _, name := range []string{"dial_timeout", "write_timeout"} {
		if d, err := time.ParseDuration(u.query.Get(name)); u.query.Has(name) && (err != nil || d <= 0) {
			return rueidis.ClientOption{}, wrong("has a %s that is not a positive duration, such as 2s", name)
		}
	}
	o, err := rueidis.ParseURL(text)
	if err != nil || o.SelectDB < 0 {
		return o, wrong("is not of the form %s", singleForm) // the text of err may repeat the password
	}
	if base != "unix" && u.hosts[0] != "" {
		return o, checkHost(u.hosts[0])
	}
	return o, nil
}

// list sets what is different for several servers.
func (u *parts) list(o *rueidis.ClientOption, kind topology) error {
	port := "6379"
	if kind == sentinel {
		port = "26379"
	}
	o.InitAddress = nil
	for _, host := range u.hosts {
		if host == "" {
			return wrong("has an empty name in its list of servers")
		}
		if err := checkHost(host); err != nil {
			return err
		}
		name, p, err := net.SplitHostPort(host)
		if err != nil {
			name, p = strings.Trim(host, "[]"), port
		}
		o.InitAddress = append(o.InitAddress, net.JoinHostPort(name, p))
	}
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each server is checked by the name that it is dialled by
	}
	if kind == sentinel {
		o.Sentinel.Username = u.query.Get("sentinel_user")
		o.Sentinel.Password = u.query.Get("sentinel_password")
		o.Sentinel.TLSConfig = o.TLSConfig
		o.Sentinel.ClientName = o.ClientName
	}
	return nil
}

// checkHost checks one server of the form host, host:port or [address]:port.
func checkHost(host string) error {
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		name, port = host[:i], host[i+1:]
	}
	bracketed := strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]")
	n, err := strconv.ParseUint(cmp.Or(port, "1"), 10, 16)
	if err != nil || n == 0 || port == "" && strings.HasSuffix(host, ":") ||
		!bracketed && strings.ContainsAny(name, ":[]") {
		return wrong("has a server that is not of the form host:port, with a port from 1 to 65535, or [address]:port")
	}
	return nil
}
