package fromlitellm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/pattern"
)

// callers are the keys and teams of LiteLLM's database.
type callers struct {
	keys  []*callerKey
	teams []*team
	sets  []*limitSet
	names map[string]bool // of keys
	sums  map[string]bool // the SHA-256 of the keys that were read
}

// callerKey is a key of a caller. Its secret is in a variable (env), or its SHA-256 is known.
type callerKey struct {
	place     *value
	name      string
	sum, env  string
	team      *team
	user      string
	models    []string // nil: everything
	expires   string
	disabled  bool
	limits    *limitSet // nil: none of its own
	ownModels []string  // model_name, before they are resolved; nil: everything
}

// team is a team. Its keys have its name.
type team struct {
	id, name string
	models   []string // as ownModels of a key
	blocked  bool
	limits   *limitSet
	used     bool // a key is of it
}

// limitSet is limits that several keys or teams have alike: one policy, which counts each by
// itself.
type limitSet struct {
	name   string
	limits []limit
	id     string
}

// readCallers reads the answers of LiteLLM's API.
func (c *conversion) readCallers() (*callers, error) {
	s := &callers{names: map[string]bool{}, sums: map[string]bool{}}
	for _, from := range c.in.Teams {
		v, err := parseJSON(from)
		if err != nil {
			return nil, err
		}
		if v = answer(v, "teams"); v == nil {
			return nil, &Error{File: from.Name, Message: "this is not an answer of GET /team/list: a list of teams"}
		}
		for _, t := range v.list {
			c.team(s, t)
		}
	}
	for _, from := range c.in.Keys {
		v, err := parseJSON(from)
		if err != nil {
			return nil, err
		}
		list := answer(v, "keys")
		if list == nil {
			return nil, &Error{File: from.Name, Message: "this is not an answer of GET /key/list: it has no list keys"}
		}
		c.pages(v)
		for _, k := range list.list {
			c.key(s, k)
		}
	}
	return s, nil
}

// answer returns the list of an answer: the answer itself, or the value of a key.
func answer(v *value, key string) *value {
	if v.kind != isList {
		v = v.get(key)
	}
	if v == nil || v.kind != isList {
		return nil
	}
	return v
}

// pages notes that an answer is not all of them.
func (c *conversion) pages(v *value) {
	if all, ok := v.get("total_pages").whole(); ok && all > int64(len(c.in.Keys)) {
		c.leave(v, "keys", "there are %d pages: give each of them with --keys (size=100 is the largest page)", all)
	}
}

// teamReasons says why fields of a team are left out; "" if that changes nothing.
var teamReasons = reasons(map[string]string{
	"": "keys metadata created_at updated_at budget_reset_at model_id model_spend members_count " +
		"allow_team_guardrail_config",
	noTable: "admins members members_with_roles team_member_permissions team_memberships " +
		"organization_id object_permission object_permission_id access_group_ids default_team_member_models policies",
	"models have no names of a team's own":      "litellm_model_table",
	"nothing is told before a limit is reached": "soft_budget",
	perModel: "model_max_budget budget_limits",
	"there are no settings of the router here": "router_settings",
	perDay: "tpd_limit",
})

const (
	perModel = "write a policy and a rule that matches the model"
	perDay   = "write a limit with calendar: day into the policy"
)

func (c *conversion) team(s *callers, v *value) {
	t := newTable(v, "teams")
	one := &team{id: t.get("team_id").plain(), name: t.get("team_alias").plain(), blocked: t.get("blocked").yes()}
	if one.id == "" {
		c.leave(v, "teams", "a team has no team_id")
		return
	}
	if !callerNames().MatchString(one.name) || s.teamNamed(one.name) {
		one.name = one.id
	}
	if !callerNames().MatchString(one.name) || secretLike().MatchString(one.name) {
		one.name = "team-" + strconv.Itoa(len(s.teams)+1)
	}
	one.models = namesOf(t.get("models"))
	one.limits = c.limitSet(s, t, "team-limits")
	c.spent(t)
	c.rest(t, teamReasons)
	s.teams = append(s.teams, one)
}

func (s *callers) teamNamed(name string) bool {
	return slices.ContainsFunc(s.teams, func(t *team) bool { return t.name == name })
}

// callerNames are names of keys and teams that are kept: no pattern, and nothing that cannot be
// seen.
var callerNames = pattern.New(`^[\pL\pN._@+=:/-][\pL\pN ._@+=:/-]{0,98}[\pL\pN._@+=:/-]$|^[\pL\pN]$`)

// everyModel are LiteLLM's words for all models.
var everyModel = []string{"all-proxy-models", "*"}

// namesOf returns the model_names of a list; nil if all are allowed.
func namesOf(v *value) (list []string) {
	for _, m := range listOf(v) {
		if slices.Contains(everyModel, m.plain()) {
			return nil
		}
		list = append(list, m.plain())
	}
	return list
}

// limitSet returns the limits of a key or a team; nil if it has none.
func (c *conversion) limitSet(s *callers, t *table, name string) *limitSet {
	limits := c.limits(t, ofKey, c.units())
	if b := c.budgetOf(t, false); b != nil {
		limits = append(limits, *b)
	}
	if limits == nil {
		return nil
	}
	id := name + same(limits)
	for _, set := range s.sets {
		if set.id == id {
			return set
		}
	}
	taken := map[string]bool{}
	for _, set := range s.sets {
		taken[set.name] = true
	}
	set := &limitSet{unused(name, "-", taken), limits, id}
	s.sets = append(s.sets, set)
	return set
}

// units are what the providers count, of all upstreams together.
func (c *conversion) units() (list []string) {
	for _, u := range c.upstreams {
		for _, unit := range u.entries[0].units() {
			if !slices.Contains(list, unit) {
				list = append(list, unit)
			}
		}
	}
	return list
}

// keyReasons says why fields of a key are left out; "" if that changes nothing.
var keyReasons = reasons(map[string]string{
	"": "key_name total_spend created_at created_by updated_at updated_by last_active " +
		"settings_updated_at budget_reset_at model_spend rotation_count last_rotation_at key_rotation_at " +
		"allowed_cache_controls key_type soft_budget_cooldown user user_role api_key team_alias user_email",
	"keys are not changed by themselves":       "auto_rotate rotation_interval",
	"a key has no names of its own for models": "aliases",
	"a key has no settings of its own":         "config router_settings",
	noTable: "permissions agent_id project_id org_id organization_id object_permission " +
		"object_permission_id access_group_ids",
	"budgets of a table are not converted": "budget_id litellm_budget_table",
	perModel:                               "model_max_budget budget_limits budget_fallbacks",
	perDay:                                 "tpd_limit",
})

// sums are SHA-256, in hexadecimal digits, of what callers show: LiteLLM keeps them so.
var sums = pattern.New(`^[0-9a-f]{64}$`)

// key reads a key. One whose rights cannot be converted is switched off: nobody may call more here.
func (c *conversion) key(s *callers, v *value) {
	t := newTable(v, "keys")
	sum := t.get("token").plain()
	if v.kind == isText {
		sum = v.text
		c.leave(v, "keys", "the answer has no limits of its keys: ask with return_full_object=true")
	}
	switch {
	case !sums().MatchString(sum):
		c.leave(v, "keys", "a key without its SHA-256 (token) is left out")
		return
	case s.sums[sum]:
		c.leave(v, "keys", "a key that is there twice is left out")
		return
	}
	s.sums[sum] = true
	k := &callerKey{place: v, sum: sum, name: s.keyName(t.get("key_alias").plain())}
	if user := t.get("user_id").plain(); callerNames().MatchString(user) && !secretLike().MatchString(user) {
		k.user = user
	}
	k.ownModels = namesOf(t.get("models"))
	c.teamOf(s, k, t.get("team_id"))
	k.limits = c.limitSet(s, t, "key-limits")
	c.ends(k, t)
	c.models(k)
	c.routes(k, t.get("allowed_routes"))
	c.inMetadata(k, t.get("metadata"))
	c.spent(t)
	c.rest(t, keyReasons)
	s.keys = append(s.keys, k)
}

// allCalls are LiteLLM's words for all calls of models.
var allCalls = []string{"llm_api_routes", "*", "/*"}

// routes switches a key off that may not make all calls.
func (c *conversion) routes(k *callerKey, v *value) {
	if v.empty() || slices.ContainsFunc(v.list, func(r *value) bool { return slices.Contains(allCalls, r.plain()) }) {
		return
	}
	k.disabled = true
	c.leave(k.place, "key "+show(k.name), "it may make some calls only (allowed_routes), which are not converted: the key is "+
		"switched off (disabled). A key lists its paths: paths")
}

// spent notes what a key or a team has spent, if anything.
func (c *conversion) spent(t *table) {
	if n, ok := t.get("spend").times(1_000_000); ok && n > 0 {
		c.leave(t.value, t.what+": spend", "what was spent so far is not converted: budgets begin unused")
	}
}

// inMetadata notes what is in the metadata of a key. LiteLLM has limits there as well.
func (c *conversion) inMetadata(k *callerKey, v *value) {
	if v.empty() {
		return
	}
	for _, p := range v.keys {
		if strings.Contains(p.key, "limit") || strings.Contains(p.key, "budget") {
			c.leave(k.place, "key "+show(k.name), "its metadata has %s, which does not hold here: %s", show(p.key), perModel)
		}
	}
	c.leave(v, "keys: metadata", "metadata is not converted")
}

// keyName returns a name for a key that no other has.
func (s *callers) keyName(alias string) string {
	if !callerNames().MatchString(alias) || secretLike().MatchString(alias) {
		alias = "key"
	}
	name := unused(alias, "-", s.names)
	s.names[name] = true
	return name
}

// teamOf finds the team of a key.
func (c *conversion) teamOf(s *callers, k *callerKey, id *value) {
	if id == nil {
		return
	}
	i := slices.IndexFunc(s.teams, func(t *team) bool { return t.id == id.plain() })
	if i < 0 {
		k.disabled = true
		c.leave(k.place, "key "+show(k.name), "its team is not among those of --teams, so its limits are not known: the key is "+
			"switched off (disabled)")
		return
	}
	k.team = s.teams[i]
	k.team.used = true
	if k.team.blocked {
		k.disabled = true
	}
}

// ends reads until when a key is valid.
func (c *conversion) ends(k *callerKey, t *table) {
	if t.get("blocked").yes() {
		k.disabled = true
	}
	v := t.get("expires")
	if v == nil {
		return
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00"} {
		if at, err := time.Parse(form, v.plain()); err == nil && at.Year() >= 1970 && at.Year() < 10000 {
			k.expires = at.UTC().Truncate(time.Second).Format(time.RFC3339)
			return
		}
	}
	k.disabled = true
	c.leave(k.place, "key "+show(k.name), "its end is not an instant: the key is switched off (disabled)")
}

// maxKeyModels is how many models a key can list.
const maxKeyModels = 1000

// models resolves what a key may use: what both the key and its team allow.
func (c *conversion) models(k *callerKey) {
	own := k.ownModels
	if k.team != nil && slices.Contains(own, "all-team-models") {
		own = nil
	}
	k.models = c.resolve(own)
	if k.team != nil {
		k.models = both(k.models, c.resolve(k.team.models))
	}
	var why string
	switch n := len(k.models); {
	case k.models == nil:
		return
	case n == 0:
		why = "nothing that it may use is here"
	case n > maxKeyModels:
		why = fmt.Sprintf("it may use more than %d models", maxKeyModels)
	default:
		return
	}
	k.models, k.disabled = nil, true
	c.leave(k.place, "key "+show(k.name), "%s: the key is switched off (disabled)", why)
}

// resolve returns what model_names stand for here; nil if they are nil, which allows all.
func (c *conversion) resolve(names []string) (list []string) {
	if names == nil {
		return nil
	}
	list = []string{}
	for _, name := range names {
		for _, m := range c.allowed(name) {
			if !slices.Contains(list, m) {
				list = append(list, m)
			}
		}
	}
	return list
}

// both returns what both lists allow; nil allows all.
func both(key, team []string) []string {
	switch {
	case key == nil:
		return team
	case team == nil:
		return key
	}
	list := []string{}
	for _, pair := range [][2][]string{{key, team}, {team, key}} {
		for _, name := range pair[0] {
			if !slices.Contains(list, name) &&
				slices.ContainsFunc(pair[1], func(of string) bool { return allows(of, name) }) {
				list = append(list, name)
			}
		}
	}
	return list
}

// allows reports whether a name of a list, which may be a pattern, allows another name.
func allows(of, name string) bool {
	prefix, pattern := strings.CutSuffix(of, "*")
	return of == name || pattern && strings.HasPrefix(name, prefix)
}
