package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/store/pgstore"
)

// errNoHome is why a relative path cannot be put into the state folder.
var errNoHome = errors.New("there is no home directory, so there is no state folder: use an absolute path")

// StateFolder returns the default folder for a user's counts: drawgate in $XDG_STATE_HOME if that
// is an absolute path, otherwise in .local/state of the home directory. environ is in the form of
// [os.Environ].
func StateFolder(environ []string) (string, error) {
	value := func(name string) (v string) {
		for _, s := range environ {
			if rest, ok := strings.CutPrefix(s, name+"="); ok {
				v = rest
			}
		}
		return v
	}
	if dir := value("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "drawgate"), nil
	}
	home := value("HOME")
	if home == "" {
		home, _ = os.UserHomeDir() // the variable has another name on other systems
	}
	if !filepath.IsAbs(home) {
		return "", errNoHome
	}
	return filepath.Join(home, ".local", "state", "drawgate"), nil
}

// folder is the folder that relative paths are relative to.
type folder struct {
	path string
	err  error // why there is none
}

// folderOf returns the folder of a file as its path names it. Links are followed only if the path
// goes back by "..", as the system does when it opens the file.
func folderOf(name string) (f folder) {
	dir := name[:strings.LastIndexByte(name, '/')+1]
	if !slices.Contains(strings.Split(dir, "/"), "..") {
		f.path, f.err = filepath.Abs(filepath.Dir(name))
		return f
	}
	if !filepath.IsAbs(dir) {
		if f = here(); f.err != nil {
			return f
		}
		dir = f.path + "/" + dir
	}
	f.path, f.err = filepath.EvalSymlinks(dir)
	return f
}

// absolute returns the absolute form of a path. An absolute or empty path stays as it is.
func (f folder) absolute(path string) (string, error) {
	if path == "" || filepath.IsAbs(path) {
		return path, nil
	}
	if f.err != nil {
		return "", f.err
	}
	return filepath.Join(f.path, path), nil
}

// store returns a choice whose SQLite file, or files of PostgreSQL's certificates and passwords,
// have absolute paths.
func (f folder) store(c choice) choice {
	if pgstore.IsURL(c.url) { // which may name files of certificates and passwords
		c.url, c.relative, c.err = pgstore.AbsoluteFiles(c.url, f.absolute)
		return c
	}
	path, ok := SQLitePath(c.url)
	if !ok || filepath.IsAbs(path) {
		return c
	}
	if path, c.err = f.absolute(path); c.err == nil {
		c.url, c.relative = sqliteURL(path), true
	}
	return c
}

// RelativePath is the absolute form of a path that was given as a relative one.
type RelativePath struct {
	Origin // its Value is the path, or the store

	// Tell means that the path came from a flag, a variable or a preset. These name no folder, so
	// the user should be told which one is used.
	Tell bool
}

// RelativePaths returns the paths that were given as relative ones and are in use.
func (c *Config) RelativePaths() []RelativePath { return slices.Clone(c.paths) }

// locate makes the relative paths of a file absolute: they are relative to its folder.
func (c *Config) locate(f folder) (problems Problems) {
	put := func(setting string, paths ...*string) {
		for _, path := range paths {
			problems = append(problems, c.put(path, *path, setting, f, false)...)
		}
	}
	put("server.tls", &c.Server.TLS.Cert, &c.Server.TLS.Key, &c.Server.TLS.ClientCA)
	for i := range c.Server.Tokens {
		put("server.tokens", &c.Server.Tokens[i].Secret.File)
	}
	put("telemetry.salt_file", &c.Telemetry.Salt.File)
	put("telemetry.webhook", &c.Telemetry.Webhook.Secret.File, &c.Telemetry.Webhook.Address.File)
	g := &c.Gateway
	put("gateway.tls", &g.TLS.Cert, &g.TLS.Key, &g.TLS.ClientCA)
	put("gateway.incidents", &g.Incidents.File)
	put("gateway.ledger", &g.Ledger.Dir)
	for i := range g.Upstreams {
		put(upstreamSetting(g.Upstreams[i].Name), &g.Upstreams[i].APIKey.File)
	}
	for i := range g.Keys {
		k := &g.Keys[i]
		put("gateway.keys", &k.Secret.File)
		for j := range k.Secrets {
			put("gateway.keys", &k.Secrets[j].Secret.File)
		}
	}
	for i := range c.Envoy.Configs {
		put("envoy.configs", &c.Envoy.Configs[i])
	}
	return problems
}

// put sets the path of a setting to its absolute form.
func (c *Config) put(to *string, path, setting string, f folder, tell bool) Problems {
	full, err := f.absolute(path)
	if err != nil {
		return Problems{c.note(setting, "the relative path "+shorten(path)+" cannot be resolved: "+err.Error(), "")}
	}
	// the path of the file, which this one replaces
	c.paths = slices.DeleteFunc(c.paths, func(r RelativePath) bool { return r.Setting == setting && r.Value == *to })
	if full != path {
		c.paths = append(c.paths, RelativePath{Origin{setting, full, c.from(setting)}, tell})
	}
	*to = full
	return nil
}

// here returns the working directory.
func here() folder {
	dir, err := os.Getwd()
	return folder{dir, err}
}
