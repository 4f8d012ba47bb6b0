package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore/internal/pg"
)

// address is what a URL says.
type address struct {
	config *pgconn.Config
	conns  int32 // how many there may be
	schema string
	listen string // host:port; "": as the pool
	secret string // the file that has the password; "": there is none
}

// Form is what a URL looks like, for errors.
const Form = "postgres://user:password@host:5432/database?sslmode=verify-full" //nolint:gosec // an example

// IsURL reports whether a URL names a database of PostgreSQL.
func IsURL(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

// CheckURL reports whether [Open] accepts a URL, without connecting. The error is
// [store.ErrInvalid], and never shows a password.
func CheckURL(text string) error {
	// Files are read when they are used: a relative path is that of a configuration file's folder.
	base, query, _ := strings.Cut(text, "?")
	text = base + "?" + without(query, "sslrootcert", "sslcert", "sslkey", "passfile", "servicefile", "service")
	a, err := parse(text)
	if err == nil {
		_, err = newStatements(a.schema, "drawgate")
	}
	return err
}

const unreadable = "the URL cannot be read: the port must be a number, and characters such as %, /, ? and # in a password must be " +
	"written as %25, %2F, %3F and %23; a socket's folder is host=/FOLDER among the parameters"

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: pgstore: "+format, append([]any{store.ErrInvalid}, args...)...)
}

const (
	connectTimeout = 2 * time.Second
	leastConns     = 4 // that there may be, if the URL does not say
)

// settings are the parameters of libpq and pgx.
var settings = map[string]bool{
	"application_name": true, "connect_timeout": true, "host": true, "krbspn": true, "krbsrvname": true,
	"options":  true,
	"passfile": true, "port": true, "search_path": true, "service": true, "servicefile": true, "sslcert": true,
	"sslkey": true, "sslmode": true, "sslpassword": true, "sslrootcert": true, "sslsni": true, "sslnegotiation": true,
	"target_session_attrs": true, "user": true, "dbname": true, "database": true, "channel_binding": true,
	"require_auth": true, "statement_timeout": true, "lock_timeout": true, "synchronous_commit": true, "timezone": true,
}

// parse reads a URL. Errors never show a part of it that may be of a password.
func parse(text string) (*address, error) {
	if !IsURL(text) {
		return nil, invalid("the URL is not of the form %s", Form)
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, invalid("%s", unreadable)
	}
	if strings.Contains(u.EscapedPath(), "@") || u.Fragment != "" { // a / or # of a password has ended the host
		return nil, invalid("%s", unreadable)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil { // what cannot be read would be left out
		return nil, invalid("the URL's parameters cannot be read: they are separated by &, and a %% or ; in one of them must be written as %%25 or %%3B")
	}
	a := &address{conns: int32(max(leastConns, runtime.NumCPU()))}
	for name, values := range q {
		switch {
		case len(values) > 1:
			return nil, invalid("the URL gives %q more than once", name)
		case name == "schema":
			a.schema = values[0]
		case name == "listen":
			a.listen = values[0]
		case name == "password_file":
			a.secret = values[0]
		case name == "pool_max_conns":
			n, err := strconv.ParseInt(values[0], 10, 32)
			if err != nil || n < 1 {
				return nil, invalid("pool_max_conns=%s is not a number of connections", values[0])
			}
			a.conns = int32(n)
		case name == "password":
			return nil, invalid("the URL has the password as a parameter: write it before the host, or name a file that has it with password_file")
		case !settings[name] && strings.Contains(u.RawQuery, "@"): // a ? has
			return nil, invalid("%s", unreadable)
		case !settings[name]:
			return nil, invalid("the URL has a parameter %q that this store does not know", name)
		}
	}
	if a.listen != "" {
		if _, port, err := net.SplitHostPort(a.listen); err != nil || badPort(port) {
			return nil, invalid("listen=%s is not host:port", a.listen)
		}
	}
	u.RawQuery = without(u.RawQuery, "schema", "listen", "password_file", "pool_max_conns")
	if u.Path == "" {
		u.Path = "/" // else pgx takes a URL without a host for something else
	}
	if a.config, err = pgconn.ParseConfig(u.String()); err != nil {
		return nil, invalid("the URL cannot be used: %s", redacted(err, u))
	}
	c := a.config
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "drawgate"
	}
	if _, given := u.User.Password(); given && a.secret != "" {
		return nil, invalid("the URL has a password, and names a file of one: leave one of them out")
	}
	return a, nil
}

// without returns a query without some parameters. The others stay as they are written: libpq and
// pgx do not read a plus as a space.
func without(query string, names ...string) string {
	var rest []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if name, err := url.QueryUnescape(name); err != nil || !slices.Contains(names, name) {
			rest = append(rest, part)
		}
	}
	return strings.Join(rest, "&")
}

// files are the parameters that name files.
var files = []string{"sslrootcert", "sslcert", "sslkey", "passfile", "servicefile", "password_file"}

// AbsoluteFiles returns a URL in which the files that it names have absolute paths, as f returns
// them, and whether that changed it.
func AbsoluteFiles(text string, f func(path string) (string, error)) (changed string, did bool, err error) {
	base, query, ok := strings.Cut(text, "?")
	if !ok || !IsURL(text) {
		return text, false, nil
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		path, err := url.PathUnescape(value) // a plus is one
		if err != nil || path == "" || !slices.Contains(files, name) || name == "sslrootcert" && path == "system" {
			continue
		}
		full, err := f(path)
		if err != nil {
			return text, false, err
		}
		if full != path {
			parts[i], did = name+"="+strings.ReplaceAll(url.QueryEscape(full), "+", "%20"), true
		}
	}
	return base + "?" + strings.Join(parts, "&"), did, nil
}

var errPassword = errors.New("the password cannot be read")

// readPassword reads the password, if a file has it: before each connection, because it may change.
func (a *address) readPassword(c *pgconn.Config) error {
	if a.secret == "" {
		return nil
	}
	text, err := os.ReadFile(a.secret)
	if err != nil {
		return fmt.Errorf("%w on this machine: %w", errPassword, err)
	}
	if c.Password = strings.TrimSpace(string(text)); c.Password == "" {
		return fmt.Errorf("%w: the file is empty: %s", errPassword, a.secret)
	}
	return nil
}

// connect makes a connection. notice receives the server's warnings; it may be nil.
func (a *address) connect(ctx context.Context, plain bool, notice pgconn.NoticeHandler) (*pg.Conn, error) {
	c := a.config.Copy()
	c.OnNotice = notice
	if err := a.readPassword(c); err != nil {
		return nil, err
	}
	return pg.Connect(ctx, c, plain)
}

// connectOnce makes a connection outside of a pool, for a few statements.
func (a *address) connectOnce(ctx context.Context) (*pg.Conn, error) {
	return a.connect(ctx, true, nil)
}

// listener makes a connection that may listen for notifications.
func (a *address) listener(ctx context.Context) (*pg.Conn, error) {
	if a.listen == "" {
		return a.connectOnce(ctx)
	}
	c := a.config.Copy()
	host, port, _ := net.SplitHostPort(a.listen) // was checked
	n, _ := strconv.ParseUint(port, 10, 16)
	ways := []*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}
	for _, f := range c.Fallbacks { // with sslmode=prefer, there are two for each host
		if f.Host == c.Host && f.Port == c.Port {
			ways = append(ways, f)
		}
	}
	for _, w := range ways {
		w.Host, w.Port = host, uint16(n)
		if w.TLSConfig != nil && w.TLSConfig.ServerName != "" {
			w.TLSConfig.ServerName = host
		}
	}
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = host, uint16(n), ways[0].TLSConfig, ways[1:]
	if err := a.readPassword(c); err != nil {
		return nil, err
	}
	return pg.Connect(ctx, c, true)
}

func badPort(port string) bool {
	n, err := strconv.Atoi(port)
	return err != nil || n < 1 || n > 65535
}

// redacted returns the text of an error without the password of a URL.
func redacted(err error, u *url.URL) string {
	text := err.Error()
	if i := strings.Index(text, "): "); strings.HasPrefix(text, "cannot parse `") && i >= 0 {
		text = text[i+3:]
	} else if i := strings.Index(text, "`: "); strings.HasPrefix(text, "cannot parse `") && i >= 0 {
		text = text[i+3:]
	}
	if password, ok := u.User.Password(); ok && password != "" {
		text = strings.ReplaceAll(text, password, "***")
		text = strings.ReplaceAll(text, url.QueryEscape(password), "***")
	}
	return text
}

// MayForget reports whether a URL says that the server does not wait for its disk. Only the server
// knows it otherwise: see [Store.Facts].
func MayForget(text string) bool {
	a, err := parse(text)
	return err == nil && a.config.RuntimeParams["synchronous_commit"] == "off"
}
