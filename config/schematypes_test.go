package config_test

import (
	"github.com/invopop/jsonschema"
)

// The types of the other parts of a file: see schema_test.go.
type (
	override struct {
		Key    string             `json:"key"              jsonschema:"minLength=1,maxLength=1024,pattern=^[^*]*\\*?$" jsonschema_description:"The key, or a prefix of keys followed by *."`
		Tenant string             `json:"tenant,omitempty" jsonschema_description:"Only for this tenant's keys. Default: any tenant's."`
		Limits map[string]varying `json:"limits"           jsonschema:"minProperties=1" jsonschema_description:"Different amounts, by the names of limits. Limits that are not named keep their amounts. The buckets are the same."`
	}
	varying   string
	fallback  string
	starting  string
	instances struct{}

	rule struct {
		Name     string    `json:"name,omitempty"     jsonschema:"maxLength=128" jsonschema_description:"What answers, messages and metrics call the rule."`
		Match    *match    `json:"match,omitempty"`
		When     string    `json:"when,omitempty"     jsonschema:"maxLength=4096" jsonschema_description:"An expression that must be true, such as path startsWith \"/v1/\" && user != \"\". Conditions that can be expressed in match are faster there."`
		Schedule *schedule `json:"schedule,omitempty"`
		Tenant   string    `json:"tenant,omitempty"   jsonschema:"maxLength=4096" jsonschema_description:"An expression that says whose keys they are, such as header(\"X-Tenant\"). Default: the caller's own tenant."`
		Apply    []apply   `json:"apply,omitempty"    jsonschema:"minItems=1,maxItems=8" jsonschema_description:"The policies that count the request: all pass, or nothing is spent."`
		Exempt   bool      `json:"exempt,omitempty"   jsonschema:"default=false" jsonschema_description:"Nothing is applied to the request, by this rule or later ones."`
		Final    bool      `json:"final,omitempty"    jsonschema:"default=false" jsonschema_description:"Later rules are ignored."`
		Shadow   bool      `json:"shadow,omitempty"   jsonschema:"default=false" jsonschema_description:"What the rule applies is evaluated and reported with buckets of its own, never enforced."`
	}
	match struct {
		Methods oneOrMore         `json:"methods,omitempty" jsonschema_description:"One of these methods."`
		Path    string            `json:"path,omitempty"    jsonschema:"maxLength=1024" jsonschema_description:"/v1/items, /v1/* for everything that begins with /v1/, /v1/items/{id} for any one segment."`
		Host    string            `json:"host,omitempty"    jsonschema:"maxLength=1024" jsonschema_description:"api.example.com or *.example.com."`
		Route   string            `json:"route,omitempty"   jsonschema:"maxLength=1024" jsonschema_description:"The pattern or name that a router found: exact, or prefix*."`
		User    string            `json:"user,omitempty"    jsonschema:"maxLength=1024,pattern=^[^*]*\\*?$" jsonschema_description:"Who is authenticated: exact, prefix*, or * for anybody who is."`
		Class   string            `json:"class,omitempty"   jsonschema:"maxLength=1024,pattern=^[^*]*\\*?$" jsonschema_description:"The class of the API key: see api_keys."`
		IPs     oneOrMore         `json:"ips,omitempty"     jsonschema_description:"The client's address is in one of these networks, such as 10.0.0.0/8."`
		Headers map[string]string `json:"headers,omitempty" jsonschema:"minProperties=1" jsonschema_description:"Values of headers by their names: exact, prefix*, or * for any."`
		Attrs   map[string]string `json:"attrs,omitempty"   jsonschema:"minProperties=1" jsonschema_description:"Values of other attributes that callers send, by their names: exact, prefix*, or * for any."`
	}
	schedule struct {
		Days oneOrMore `json:"days,omitempty" jsonschema_description:"Days of the week, such as mon. With a time past midnight, the day on which it begins. Default: all."`
		From string    `json:"from,omitempty" jsonschema:"pattern=^[0-9]{1\\,2}:[0-9]{2}$" jsonschema_description:"The time of day, from \"00:00\". Put it in quotes."`
		To   string    `json:"to,omitempty"   jsonschema:"pattern=^[0-9]{1\\,2}:[0-9]{2}$" jsonschema_description:"The time of day before which it ends, up to \"24:00\". If it is not after from, it is on the next day."`
		Zone string    `json:"zone,omitempty" jsonschema:"default=UTC" jsonschema_description:"A name of the IANA time zone database."`
	}
	apply struct {
		Policy string             `json:"policy"           jsonschema_description:"The name of a policy."`
		Key    string             `json:"key"              jsonschema:"minLength=1,maxLength=4096" jsonschema_description:"An expression that says who is counted: ip, user, path, header(\"X-Team\"), join(user, route), or '\"global\"' for one bucket for all."`
		Limits map[string]varying `json:"limits,omitempty" jsonschema:"minProperties=1" jsonschema_description:"Other amounts for this use, by the names of limits. The buckets are the same."`
		Costs  map[string]count0  `json:"costs,omitempty"  jsonschema:"minProperties=1" jsonschema_description:"How many units of each kind the request costs. Default: one request."`
		Shadow bool               `json:"shadow,omitempty" jsonschema:"default=false" jsonschema_description:"Evaluated and reported with buckets of its own, never enforced."`
	}
	oneOrMore []string
	count0    int64

	apiKeys struct {
		Header  string             `json:"header,omitempty"  jsonschema:"default=X-API-Key" jsonschema_description:"The header that carries the key."`
		Default string             `json:"default,omitempty" jsonschema:"default=default" jsonschema_description:"The class of requests without a key, or with one that is not known."`
		Classes map[string]keyList `json:"classes"           jsonschema:"minProperties=1" jsonschema_description:"For each class name, the SHA-256 of its keys. The keys themselves must not be in the file."`
	}
	keyList []string

	queue struct {
		MaxDepth    int      `json:"max_depth,omitempty"    jsonschema:"minimum=1,maximum=1000000000,default=50" jsonschema_description:"The maximum number of tasks in the queue."`
		RetryDelay  duration `json:"retry_delay,omitempty"  jsonschema_description:"The delay before a task that could not run is tried again (1ms to 24h). Default 60s."`
		MaxAttempts int      `json:"max_attempts,omitempty" jsonschema:"minimum=1,maximum=1000,default=3" jsonschema_description:"How many times a task is tried."`
		Multiplier  float64  `json:"multiplier,omitempty"   jsonschema:"minimum=1,maximum=100,default=2" jsonschema_description:"What the delay is multiplied by after each attempt."`
	}

	server struct {
		Listen      string       `json:"listen,omitempty"       jsonschema:"default=127.0.0.1:7878" jsonschema_description:"host:port of the API and of /auth for proxies; off for none."`
		Admin       string       `json:"admin,omitempty"        jsonschema:"default=127.0.0.1:7879" jsonschema_description:"host:port for administrators and metrics; off for none."`
		GRPC        string       `json:"grpc,omitempty"         jsonschema:"default=off" jsonschema_description:"host:port of the rate limit service for Envoy; off for none."`
		TLS         *tlsFiles    `json:"tls,omitempty"`
		Tokens      []token      `json:"tokens,omitempty"       jsonschema:"minItems=1,maxItems=1000" jsonschema_description:"Access tokens. Without any, whoever reaches a listener may do everything, and only loopback addresses are served."`
		Ready       string       `json:"ready,omitempty"        jsonschema:"enum=any,enum=all,default=any" jsonschema_description:"While the store is unavailable /readyz answers 200 if any policy can be decided, or only if all can."`
		Insecure    bool         `json:"insecure,omitempty"     jsonschema:"default=false" jsonschema_description:"Serve addresses other than loopback without tokens and client certificates."`
		Proxies     *proxies     `json:"proxies,omitempty"`
		ForwardAuth *forwardAuth `json:"forward_auth,omitempty"`
	}
	tlsFiles struct {
		Cert     string `json:"cert"                jsonschema_description:"File with the certificate and any intermediate certificates, in PEM."`
		Key      string `json:"key"                 jsonschema_description:"File of its key, in PEM."`
		ClientCA string `json:"client_ca,omitempty" jsonschema_description:"File of authorities in PEM: only clients with a certificate of one of them are served."`
	}
	token struct {
		Name      string   `json:"name,omitempty"       jsonschema_description:"For people."`
		Role      roleList `json:"role"                 jsonschema_description:"take (take, settle, /auth for proxies), read (status, explain, policies, upstreams, incidents, metrics), admin (everything), or a list of them."`
		Tenant    string   `json:"tenant,omitempty"     jsonschema_description:"The only tenant whose buckets it may name."`
		TokenEnv  string   `json:"token_env,omitempty"  jsonschema_description:"The environment variable that holds the token, of at least 16 bytes."`
		TokenFile string   `json:"token_file,omitempty" jsonschema_description:"The file that holds the token."`
		SHA256    string   `json:"sha256,omitempty"     jsonschema:"pattern=^(sha256:)?[0-9a-fA-F]{64}$" jsonschema_description:"The SHA-256 of the token."`
	}
	roleList []string
	kindList []string
	proxies  struct {
		Trusted oneOrMore `json:"trusted,omitempty" jsonschema_description:"Networks of proxies that are trusted to name the client."`
		Header  string    `json:"header,omitempty"  jsonschema:"default=X-Forwarded-For" jsonschema_description:"The header with the client's address. It is read from the right, up to the first address that is not trusted."`
		Unix    bool      `json:"unix,omitempty"    jsonschema:"default=false" jsonschema_description:"Peers that connect over a Unix socket are trusted too."`
	}
	forwardAuth struct {
		Status       int       `json:"status,omitempty" jsonschema:"enum=401,enum=403,enum=429,default=429" jsonschema_description:"The status of a refusal. nginx needs 403."`
		AllowAway    bool      `json:"allow_away,omitempty" jsonschema:"default=false" jsonschema_description:"Requests pass, marked, if the store does not decide. Otherwise they are answered with 503. A decision by a fallback counts as a decision."`
		Shared       oneOrMore `json:"shared,omitempty" jsonschema_description:"Policies of which all callers share a bucket: a refusal then says that it is not the caller's own limit."`
		Describe     oneOrMore `json:"describe,omitempty" jsonschema_description:"Policies whose limits the headers describe. Default: all."`
		URIHeader    string    `json:"uri_header,omitempty" jsonschema_description:"The header with the request's path. Default: X-Forwarded-Uri, X-Original-URI or X-Original-URL."`
		MethodHeader string    `json:"method_header,omitempty" jsonschema_description:"The header with the request's method. Default: X-Forwarded-Method or X-Original-Method."`
		HostHeader   string    `json:"host_header,omitempty" jsonschema_description:"The header with the request's host. Default: X-Forwarded-Host."`
		UserHeader   string    `json:"user_header,omitempty" jsonschema_description:"The header with the signed-in user. Default: none. The proxy must overwrite it."`
		ClassHeader  string    `json:"class_header,omitempty" jsonschema_description:"The header with the caller's class. Default: none; see api_keys. The proxy must overwrite it."`
	}

	envoy struct {
		Configs         oneOrMore `json:"configs,omitempty"  jsonschema_description:"Files and directories in the format of envoyproxy/ratelimit."`
		Merge           bool      `json:"merge,omitempty"    jsonschema:"default=false" jsonschema_description:"A file may add to a domain of another file."`
		Windows         string    `json:"windows,omitempty"  jsonschema:"enum=rolling,enum=aligned,default=rolling" jsonschema_description:"rolling: the last minute, so that no minute has more. aligned: from one full minute to the next, as envoyproxy/ratelimit counts."`
		Refunds         bool      `json:"refunds,omitempty"  jsonschema:"default=false" jsonschema_description:"Hits can be given back. They carry no id, so a limit may be exceeded by the number of such hits."`
		OnStoreFailure  string    `json:"on_store_failure,omitempty" jsonschema:"enum=fallback,enum=error,default=fallback" jsonschema_description:"What answers while the store is unavailable: the fallback of each limit, or an error, so that Envoy's failure_mode_deny decides."`
		Shadow          bool      `json:"shadow,omitempty"   jsonschema:"default=false" jsonschema_description:"Everything is decided and counted, and every answer is OK."`
		Reports         string    `json:"reports,omitempty"  jsonschema:"enum=marked,enum=own-hits,default=marked" jsonschema_description:"Which hits count as already used, even beyond the limit: those of marked descriptors, or (own-hits) also those of descriptors with their own hits."`
		Headers         string    `json:"headers,omitempty"  jsonschema:"enum=retry-after,enum=none,enum=legacy,enum=x,enum=draft,default=retry-after" jsonschema_description:"Which headers answers ask Envoy to add."`
		LimitHeader     string    `json:"limit_header,omitempty" jsonschema:"default=RateLimit-Limit" jsonschema_description:"With legacy: the name of that header."`
		RemainingHeader string    `json:"remaining_header,omitempty" jsonschema:"default=RateLimit-Remaining" jsonschema_description:"With legacy: the name of that header."`
		ResetHeader     string    `json:"reset_header,omitempty" jsonschema:"default=RateLimit-Reset" jsonschema_description:"With legacy: the name of that header."`
		ShadowHeader    bool      `json:"shadow_header,omitempty" jsonschema:"default=false" jsonschema_description:"X-RateLimit-Shadow tells Envoy's clients which policies in shadow differ."`
		Metadata        bool      `json:"metadata,omitempty" jsonschema:"default=false" jsonschema_description:"Answers describe the request in dynamic metadata."`
	}

	telemetry struct {
		Metrics        bool        `json:"metrics,omitempty"         jsonschema:"default=true" jsonschema_description:"Prometheus metrics on the admin listener."`
		Identifiers    int         `json:"identifiers,omitempty"     jsonschema:"minimum=0,maximum=1000,default=20" jsonschema_description:"How many keys of each policy have metrics of their own."`
		RawIdentifiers bool        `json:"raw_identifiers,omitempty" jsonschema:"default=false" jsonschema_description:"Metrics show keys as they are. They may be personal data or secrets."`
		SaltEnv        string      `json:"salt_env,omitempty"        jsonschema_description:"The environment variable that holds the secret that hides keys; it should be the same in all processes. Default: a new random one at each start."`
		SaltFile       string      `json:"salt_file,omitempty"       jsonschema_description:"The file of that secret."`
		RefusalsEvery  duration    `json:"refusals_every,omitempty" jsonschema_description:"The shortest time between warnings about refusals by one limit; each warning has their number (1s to 24h). Default 1m."`
		Watch          []watched   `json:"watch,omitempty"           jsonschema:"minItems=1,maxItems=100" jsonschema_description:"Buckets, of policies with many keys, whose usage the metrics show."`
		Webhook        *webhook    `json:"webhook,omitempty"`
		CloudWatch     *cloudWatch `json:"cloudwatch,omitempty"`
	}
	cloudWatch struct {
		Namespace string   `json:"namespace,omitempty" jsonschema:"pattern=^[0-9A-Za-z._/#-][0-9A-Za-z._/#:-]{0\\,254}$,default=Drawgate" jsonschema_description:"The namespace of the metrics."`
		EMF       bool     `json:"emf,omitempty"       jsonschema:"default=false" jsonschema_description:"Write lines in the embedded metric format to the standard output."`
		Put       bool     `json:"put,omitempty"       jsonschema:"default=false" jsonschema_description:"Send PutMetricData, with the credentials that AWS's own tools would use."`
		Interval  duration `json:"interval,omitempty"  jsonschema_description:"How often metrics are reported (1s to 1h). Default 1m."`
		Region    string   `json:"region,omitempty"    jsonschema_description:"With put: the region. Default: what the environment or AWS's shared configuration says."`
		Endpoint  string   `json:"endpoint,omitempty"  jsonschema:"pattern=^https?://" jsonschema_description:"With put: another address than that of AWS."`
	}
	watched struct {
		Policy string `json:"policy"           jsonschema_description:"The policy."`
		Tenant string `json:"tenant,omitempty" jsonschema_description:"The tenant."`
		Key    string `json:"key"              jsonschema_description:"The key."`
		Name   string `json:"name,omitempty"   jsonschema:"maxLength=128" jsonschema_description:"What metrics call it. Default: the key's hash."`
	}
	webhook struct {
		URL        string   `json:"url,omitempty"                   jsonschema:"pattern=^https?://" jsonschema_description:"The URL that warnings are posted to."`
		URLEnv     string   `json:"url_env,omitempty" jsonschema_description:"The environment variable of the URL, if it is a secret itself."`
		URLFile    string   `json:"url_file,omitempty" jsonschema_description:"The file of the URL."`
		SecretEnv  string   `json:"secret_env,omitempty"  jsonschema_description:"The environment variable that holds the signing secret, of at least 16 bytes."`
		SecretFile string   `json:"secret_file,omitempty" jsonschema_description:"The file of that secret."`
		Kinds      kindList `json:"kinds,omitempty" jsonschema_description:"Which warnings are sent. Default: all."`
		Milestones []string `json:"milestones,omitempty"  jsonschema:"minItems=1,maxItems=4,enum=50%,enum=80%,enum=95%,enum=100%" jsonschema_description:"Which milestones of usage are sent. Default: all four."`
	}
)

func (varying) JSONSchema() *jsonschema.Schema {
	n := count0(0).JSONSchema()
	pairs := jsonschema.NewProperties()
	pairs.Set("amount", n)
	pairs.Set("burst", count(0).JSONSchema())
	least := uint64(1)
	return &jsonschema.Schema{AnyOf: append(n.AnyOf, &jsonschema.Schema{
		Type: "object", Properties: pairs, AdditionalProperties: jsonschema.FalseSchema, MinProperties: &least,
	})}
}

func (starting) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Type: "string", Enum: []any{"closed", "cold", "full"},
		Description: "What a process admits of its share that starts while the store is unavailable, " +
			"and so does not know what was used: closed (nothing), cold (a part of the share; " +
			"drawgate bound --starts prints what that may admit too much), " +
			"full (all of it; only on SQLite with instances: 1, otherwise cold). Default: closed.",
	}
}

func (fallback) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Type: "string", Enum: []any{"closed", "share", "open"},
		Description: "What is admitted while the store is unavailable: closed (nothing), share (the amount divided by instances, in this process), open (everything). " +
			"Default for a limit: the policy's. Default for a policy: share.",
	}
}

func (instances) JSONSchema() *jsonschema.Schema {
	number := &jsonschema.Schema{Type: "integer", Minimum: "1", Maximum: "100000"}
	pairs := jsonschema.NewProperties()
	pairs.Set("auto", &jsonschema.Schema{Const: true, Description: "Count the processes in the store."})
	pairs.Set("at_least", &jsonschema.Schema{Type: "integer", Minimum: "1", Maximum: "100000", Description: "The minimum to assume, however few are counted."})
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		number, {Const: "auto"}, {Type: "object", Properties: pairs, Required: []string{"auto"}, AdditionalProperties: jsonschema.FalseSchema},
	}}
}

func (count0) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "integer", Minimum: "0", Maximum: "1000000000000"},
		{Type: "string", Pattern: `^[1-9][0-9]*(_[0-9]+)+$`},
	}}
}

func oneOrList(one *jsonschema.Schema) *jsonschema.Schema {
	least := uint64(1)
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{one, {Type: "array", Items: one, MinItems: &least}}}
}

func (oneOrMore) JSONSchema() *jsonschema.Schema {
	return oneOrList(&jsonschema.Schema{Type: "string"})
}

func (roleList) JSONSchema() *jsonschema.Schema {
	return oneOrList(&jsonschema.Schema{Type: "string", Enum: []any{"take", "read", "admin"}})
}

func (kindList) JSONSchema() *jsonschema.Schema {
	return oneOrList(&jsonschema.Schema{Type: "string", Enum: []any{
		"milestone", "limit_exceeded", "backend_error", "fallback_activated", "fallback_ended", "shadow_divergence",
		"circuit_opened", "circuit_closed", "store_lost", "incident",
	}})
}

func (keyList) JSONSchema() *jsonschema.Schema {
	least := uint64(1)
	return &jsonschema.Schema{Type: "array", MinItems: &least, Items: &jsonschema.Schema{Type: "string", Pattern: "^sha256:[0-9a-fA-F]{64}$"}}
}

// about describes the types of which nothing else need be said.
var about = map[string]string{
	"override":    "Other amounts for some keys of a policy.",
	"schedule":    `When the rule holds: {days: [mon, tue], from: "08:00", to: "18:00", zone: Europe/Paris}.`,
	"apply":       "A policy that counts the request, and under which key.",
	"apiKeys":     "Classes of API keys, for rules: {header: X-API-Key, classes: {privileged: [\"sha256:…\"]}}.",
	"queue":       "For programs with their own task queue: its size, and when tasks are tried again.",
	"server":      "How the server listens, and whom it trusts.",
	"tlsFiles":    "TLS on all listeners. Files that change are read again.",
	"proxies":     "Which proxies are trusted to name the client's address. Default: none; the client is whoever opened the connection.",
	"forwardAuth": "/auth, for nginx auth_request, Caddy forward_auth and Traefik ForwardAuth.",
	"envoy":       "The rate limit service for Envoy.",
	"telemetry":   "Metrics, warnings and webhooks.",
	"watched":     "A bucket whose usage is shown in the metrics.",
	"gateway":     "The reverse proxy in front of LLM providers.",
	"circuit":     "When calls to a provider that fails are stopped.",
	"answerCache": "Which answers are kept.",
	"prices":      "What models cost, for budgets in money.",
	"price":       "Of a million tokens, such as \"2.50\".",
	"model":       "How calls of some models are counted, and what may take their place.",
	"upstream":    "One account of a provider.",
}

func (rule) JSONSchemaExtend(s *jsonschema.Schema) {
	s.Description = "All of match, when and schedule must hold; a missing one always holds."
	need := func(key string) *jsonschema.Schema { return &jsonschema.Schema{Required: []string{key}} }
	s.AnyOf = []*jsonschema.Schema{need("apply"), need("exempt"), need("final")}
}

func (match) JSONSchemaExtend(s *jsonschema.Schema) {
	least := uint64(1)
	s.Description, s.MinProperties = "Conditions on single attributes of a request. All that are given must hold.", &least
}

func (token) JSONSchemaExtend(s *jsonschema.Schema) {
	need := func(key string) *jsonschema.Schema { return &jsonschema.Schema{Required: []string{key}} }
	s.OneOf = []*jsonschema.Schema{need("token_env"), need("token_file"), need("sha256")}
	s.Description = "An access token. It is kept in an environment variable or a file, never here."
}

func (cloudWatch) JSONSchemaExtend(s *jsonschema.Schema) {
	need := func(key string) *jsonschema.Schema { return &jsonschema.Schema{Required: []string{key}} }
	s.AnyOf = []*jsonschema.Schema{need("emf"), need("put")}
	s.Description = "Metrics of Amazon CloudWatch: either emf or put."
}

func (webhook) JSONSchemaExtend(s *jsonschema.Schema) {
	need := func(key string) *jsonschema.Schema { return &jsonschema.Schema{Required: []string{key}} }
	s.AllOf = []*jsonschema.Schema{
		{OneOf: []*jsonschema.Schema{need("secret_env"), need("secret_file")}},
		{OneOf: []*jsonschema.Schema{need("url"), need("url_env"), need("url_file")}},
	}
	s.Description = "The webhook to which signed warnings are posted."
}
