package fromlitellm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/pattern"
)

// notLiteLLM says what was expected.
const notLiteLLM = "this is not a configuration of LiteLLM's proxy: it has no model_list, a list of entries with " +
	"model_name and litellm_params"

const maxIncludes = 20

// sections returns the sections of the configuration and of the files that it includes, by name.
func (c *conversion) sections() (map[string]*value, error) {
	root, err := parse(c.in.Config)
	if err != nil {
		return nil, err
	}
	found := map[string]*value{}
	if err := c.add(found, root, 0); err != nil {
		return nil, err
	}
	list := found["model_list"]
	switch {
	case list != nil && list.kind == isList:
	case root.get("policies") != nil && root.get("gateway") != nil:
		return nil, &Error{File: root.file, Line: 1, Column: 1, Message: notLiteLLM + ". It looks like one of Drawgate"}
	case list != nil && list.kind != isNull:
		return nil, &Error{
			File: list.file, Line: list.line, Column: 1, Message: notLiteLLM + ": model_list is not a list",
		}
	default:
		return nil, &Error{File: root.file, Line: 1, Column: 1, Message: notLiteLLM}
	}
	return found, nil
}

// add adds the sections of a file. As in LiteLLM the lists of an included file are appended, and
// other sections of it take the place of those that are there.
func (c *conversion) add(found map[string]*value, root *value, depth int) error {
	if root.kind != isTable {
		return &Error{File: root.file, Line: max(1, root.line), Column: 1, Message: notLiteLLM}
	}
	for _, p := range root.keys {
		if p.empty() {
			continue
		}
		why, known := sectionReasons[p.key]
		old := found[p.key]
		switch {
		case !known:
			c.leave(p.value, show(p.key), "this section is not known here")
		case why != "":
			c.leave(p.value, show(p.key), "%s", why)
		case old != nil && old.kind == isList && p.kind == isList:
			old.list = append(old.list, p.list...)
		case old != nil:
			c.leave(old, show(p.key), "%s, line %d, has this section too, which takes its place", p.file, p.line)
			found[p.key] = p.value
		default:
			found[p.key] = p.value
		}
	}
	return c.include(found, root.get("include"), depth)
}

// include adds the files that a file includes.
func (c *conversion) include(found map[string]*value, list *value, depth int) error {
	for i, item := range listOf(list) {
		if c.in.Include == nil || depth > 3 || i >= maxIncludes {
			c.leave(item, "include", "the file is not read")
			continue
		}
		s, err := c.in.Include(item.plain())
		if err != nil {
			return &Error{File: item.file, Line: item.line, Column: 1, Message: fmt.Sprintf("include: %v", err)}
		}
		root, err := parse(s)
		if err != nil {
			return err
		}
		if err := c.add(found, root, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// sectionReasons says of sections why they are left out; "" of those that are read.
var sectionReasons = reasons(map[string]string{
	"":                                  "model_list litellm_settings router_settings general_settings environment_variables include",
	"there are no guardrails here":      "guardrails",
	"there are no stored prompts here":  "prompts",
	"MCP servers are not proxied":       "mcp_servers mcp_tools",
	"vector stores are not proxied":     "vector_store_registry",
	"tools of searches are not proxied": "search_tools",
	"files pass to the upstream that lists their paths in others":           "files_settings",
	"fine-tuning passes to the upstream that lists its paths in others":     "finetune_settings",
	"assistants are not proxied":                                            "assistants_settings",
	"calls are not logged elsewhere: see docs/audit.md and docs/metrics.md": "callback_settings",
	"name the variable of each model's key: api_key: os.environ/NAME":       "credential_list",
	foreign["vertex_ai"]:                                   "default_vertex_config",
	"there are no workers to register here":                "worker_registry",
	"paths pass to the upstream that lists them in others": "pass_through_endpoints",
})

// environment notes the variables that the file itself sets: their values are not copied.
func (c *conversion) environment(v *value) {
	if v == nil {
		return
	}
	for _, p := range v.keys {
		if !variables().MatchString(p.key) {
			c.leave(p.value, "environment_variables", "a name is not that of a variable")
			continue
		}
		c.given[p.key] = p.value
		c.variables[p.key] = true
		c.leave(p.value, "environment_variables: "+show(p.key), "a file here sets no variables: if it is still used, set it "+
			"where drawgate starts. Its value was not copied")
	}
}

// proxySettings reads litellm_settings.
func (c *conversion) proxySettings(v *value) {
	t := newTable(v, "litellm_settings")
	if zone := t.get("timezone"); zone != nil {
		c.readZone(zone)
	}
	if n := t.get("num_retries"); n != nil {
		if many, ok := c.retriesOf(n, t.what); ok {
			c.retries = many
		}
	}
	if n := t.get("request_timeout"); n != nil {
		if c.timeout = seconds(n); c.timeout == "" {
			c.leave(n, t.what+": request_timeout", "it is not a number of seconds from 1 to 86400")
		}
	}
	c.budget = c.budgetOf(t, false)
	c.more = append(c.more, t.get("fallbacks"))
	c.rest(t, settingReasons)
}

// readZone reads the zone in which budgets begin.
func (c *conversion) readZone(v *value) {
	if _, err := time.LoadLocation(v.plain()); err != nil || v.plain() == "Local" {
		c.leave(v, "litellm_settings: timezone", "no zone of this name is known: it is UTC")
		return
	}
	if v.plain() != "UTC" {
		c.zone = v.plain()
	}
}

// routes are the settings of the router that name models.
type routes struct {
	aliases   *value
	fallbacks []*value
}

// routerSettings reads router_settings.
func (c *conversion) routerSettings(v *value) (r routes) {
	t := newTable(v, "router_settings")
	r.aliases = t.get("model_group_alias")
	for _, list := range append([]*value{t.get("fallbacks")}, c.more...) {
		if list != nil {
			r.fallbacks = append(r.fallbacks, list)
		}
	}
	if n := t.get("num_retries"); n != nil {
		if many, ok := c.retriesOf(n, t.what); ok {
			c.retries = many
		}
	}
	if n := t.get("timeout"); n != nil {
		if c.timeout = seconds(n); c.timeout == "" {
			c.leave(n, t.what+": timeout", "it is not a number of seconds from 1 to 86400")
		}
	}
	if s := t.get("routing_strategy"); s != nil && s.plain() != "simple-shuffle" {
		c.leave(s, t.what+": routing_strategy", "an alias stands for its accounts by weight, by the caller's key, and another "+
			"account takes over what has no room")
	}
	c.redis(t)
	c.rest(t, routerReasons)
	return r
}

var (
	hosts  = pattern.New(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?$`)
	digits = pattern.New(`^[0-9]{1,5}$`)
)

// redis takes the Redis of LiteLLM's router for the store.
func (c *conversion) redis(t *table) {
	host, port, link := t.get("redis_host"), t.get("redis_port"), t.get("redis_url")
	password, user, db := t.get("redis_password"), t.get("redis_username"), t.get("redis_db")
	at := host
	if at == nil {
		at = link
	}
	if at == nil {
		return
	}
	name, number, base := c.resolved(host), "6379", "0"
	if port != nil {
		number = c.resolved(port)
	}
	if db != nil {
		base = c.resolved(db)
	}
	if host == nil || !hosts().MatchString(name) || !digits().MatchString(number) || !digits().MatchString(base) {
		c.leave(at, "Redis", "its address is in a variable, or may have a password: set DRAWGATE_STORE, such as "+
			"redis://:PASSWORD@HOST:6379/0; until then the store is a file of SQLite, for one gateway")
		return
	}
	c.store = "redis://" + name + ":" + number + "/" + base
	if password != nil || user != nil {
		c.need("DRAWGATE_STORE", "redis://USER:PASSWORD@"+strings.TrimPrefix(c.store, "redis://")+
			", with the user, if any, and the password of router_settings")
	}
}

// masterKey reads general_settings. Callers who used the master key go on with it.
func (c *conversion) masterKey(v *value) {
	t := newTable(v, "general_settings")
	key := t.get("master_key")
	name := ""
	if n, ok := key.fromEnvironment(); ok {
		name = n
		c.need(n, "the master key, as before")
	} else if key != nil {
		name = c.variable("LITELLM_MASTER_KEY", "the master key: it is in %s, line %d", key.file, key.line)
		if len(key.text) < minSecret {
			c.leave(key, "master_key", "it has fewer than %d bytes, which is refused here: callers need a longer one", minSecret)
		}
	}
	switch {
	case key != nil:
		c.callers.keys = append([]*callerKey{{
			name: c.callers.keyName("master"), env: name, place: key,
		}}, c.callers.keys...)
		c.leave(key, "master_key", "it is a key that may call all models here, and administers nothing: keys, teams and "+
			"models are in the file")
	case len(c.callers.keys) == 0:
		c.need("GATEWAY_KEY", "a key for callers: there was none, and here each caller needs one. drawgate key new makes it")
		c.callers.keys = []*callerKey{{name: "callers", env: "GATEWAY_KEY"}}
	}
	if db := t.get("database_url"); db != nil && len(c.in.Keys) == 0 {
		c.leave(db, "database_url", "keys and teams in the database are converted from LiteLLM's API: give the answer of "+
			"GET /key/list?return_full_object=true with --keys, and that of GET /team/list with --teams")
	}
	c.rest(t, generalReasons)
}

// sorted sorts notes by file, in the order in which the files were given, and by line.
func (c *conversion) sorted() []Note {
	files := []string{c.in.Config.Name}
	for _, n := range c.left {
		if !slices.Contains(files, n.File) {
			files = append(files, n.File)
		}
	}
	list := slices.Clone(c.left)
	slices.SortStableFunc(list, func(a, b Note) int {
		if order := slices.Index(files, a.File) - slices.Index(files, b.File); order != 0 {
			return order
		}
		return a.Line - b.Line
	})
	return list
}
