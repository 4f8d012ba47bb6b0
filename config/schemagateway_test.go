package config_test

import "github.com/invopop/jsonschema"

// The types of the gateway's section: see schema_test.go.
type (
	gateway struct {
		Listen    string              `json:"listen,omitempty"   jsonschema:"default=127.0.0.1:7881" jsonschema_description:"host:port; off for none."`
		TLS       *tlsFiles           `json:"tls,omitempty"`
		MaxBody   int64               `json:"max_body,omitempty" jsonschema:"minimum=1,maximum=1073741824,default=33554432" jsonschema_description:"Largest request in bytes."`
		MaxBodies int64               `json:"max_bodies,omitempty" jsonschema:"minimum=1,maximum=1099511627776,default=1073741824" jsonschema_description:"Bytes of all requests whose answers have not begun, beyond which more are refused. At least max_body."`
		MaxWait   duration            `json:"max_wait,omitempty" jsonschema_description:"Longest wait in the queue (1ms to 24h), which wait.up_to of a policy and Drawgate-Timeout of a caller can shorten. Default 90s."`
		Drain     duration            `json:"drain,omitempty" jsonschema_description:"How long running answers may take when the process stops (1ms to 24h). Then they are cut off. Default 30s."`
		Cache     int64               `json:"cache,omitempty"    jsonschema:"minimum=1,maximum=1099511627776,default=67108864" jsonschema_description:"Bytes of answers that are kept, for models that have a cache."`
		Ledger    *callLedger         `json:"ledger,omitempty"`
		Upstreams map[string]upstream `json:"upstreams"          jsonschema:"minProperties=1" jsonschema_description:"Accounts of providers by name. The name is the first segment of callers' paths: http://gateway:7881/openai/v1."`
		Keys      []virtualKey        `json:"keys"               jsonschema:"minItems=1" jsonschema_description:"Virtual keys: what callers show in place of a provider's key."`
		Prices    *prices             `json:"prices,omitempty"`
		Incidents *incidents          `json:"incidents,omitempty" jsonschema_description:"What is kept of calls that an upstream refused although the limits had allowed them."`
	}
	incidents struct {
		File string    `json:"file,omitempty" jsonschema:"maxLength=1024" jsonschema_description:"The file that they are appended to, one line of JSON each. Default: beside the SQLite store; none with another store."`
		SNS  *snsTopic `json:"sns,omitempty" jsonschema_description:"The topic of Amazon SNS that each of them is published to at once. Default: none."`
	}
	snsTopic struct {
		Topic    string `json:"topic" jsonschema:"pattern=^arn:aws[a-z-]{0\\,20}:sns:[a-z]{2}[a-z0-9-]{1\\,30}:[0-9]{12}:[A-Za-z0-9_-]{1\\,256}$" jsonschema_description:"The ARN of a standard topic, such as arn:aws:sns:eu-central-1:123456789012:drawgate."`
		Region   string `json:"region,omitempty" jsonschema:"pattern=^[a-z]{2}[a-z0-9-]{1\\,30}$" jsonschema_description:"The region that is asked. Default: the one in the topic's ARN."`
		Endpoint string `json:"endpoint,omitempty" jsonschema:"format=uri" jsonschema_description:"Another address of SNS, such as that of a VPC endpoint. Credentials come from where AWS's own tools look for them."`
	}
	callLedger struct {
		Dir string `json:"dir" jsonschema:"minLength=1" jsonschema_description:"The folder in which each gateway writes down what it reserved and what calls used, for drawgate audit. Several gateways can share it. Without it nothing is written."`
	}
	upstream struct {
		Profile    string    `json:"profile,omitempty"      jsonschema:"enum=openai,enum=anthropic,enum=gemini,enum=generic" jsonschema_description:"What the provider counts, and how it says so. Also of what speaks the same protocol; generic describes another one. Default: the upstream's name."`
		URL        string    `json:"url,omitempty"          jsonschema:"pattern=^https?://" jsonschema_description:"Of the API. Default: the provider's."`
		APIKeyEnv  string    `json:"api_key_env,omitempty"  jsonschema_description:"The environment variable that holds the provider's key. It never reaches callers."`
		APIKeyFile string    `json:"api_key_file,omitempty" jsonschema_description:"The file that holds it."`
		KeyHeader  string    `json:"key_header,omitempty"   jsonschema_description:"The header that carries it, such as api-key for Azure. Default: the provider's own."`
		Owner      string    `json:"owner,omitempty"        jsonschema:"maxLength=1024" jsonschema_description:"Whose quota it is, such as a project: the key of the policies' buckets. Default: the upstream's name."`
		Models     []model   `json:"models"                 jsonschema:"minItems=1,maxItems=1000" jsonschema_description:"How calls are counted. The first entry that fits a call's model decides; a call that fits none is refused."`
		Estimate   string    `json:"estimate,omitempty"     jsonschema:"enum=upper,enum=likely,default=upper" jsonschema_description:"What a call reserves before it is made: the most that it can use, or what it will likely use, learned from answers."`
		Breaker    *circuit  `json:"breaker,omitempty"`
		Retries    int       `json:"retries,omitempty"      jsonschema:"minimum=0,maximum=10,default=0" jsonschema_description:"How often a call that failed, or was refused for the quota, is made again. Each attempt counts."`
		Hold       duration  `json:"hold,omitempty"         jsonschema_description:"How long a call's units stay held if this process dies (1s to 1h). Default 30s."`
		Others     oneOrMore `json:"others,omitempty"      jsonschema_description:"Paths that are passed on though no quota counts them, exact or with * at the end: /v1/files, /v1/files/*. Otherwise only lists of models and counts of tokens."`
		Silence    duration  `json:"silence,omitempty"      jsonschema_description:"Longest time without anything from the provider (1s to 24h). Default 10m."`
		Duration   duration  `json:"duration,omitempty"     jsonschema_description:"Longest time of a whole answer (1s to 24h). Default 1h."`

		CreditPause duration `json:"credit_pause,omitempty" jsonschema_description:"How long no call is made after the provider's credit was exhausted (1s to 24h). Default 5m."`
		Generic     *generic `json:"generic,omitempty"`
	}
	generic struct {
		Name      string         `json:"name,omitempty"       jsonschema:"maxLength=1024" jsonschema_description:"What rules (attr provider) call the provider. Default: the upstream's name."`
		Units     []genericUnit  `json:"units,omitempty"      jsonschema:"minItems=1,maxItems=32" jsonschema_description:"That its quotas count. Default: requests and tokens."`
		Paths     oneOrMore      `json:"paths"                jsonschema_description:"URL paths of calls that count, behind url."`
		Model     string         `json:"model"                jsonschema_description:"Path of the model's name. A path is a list of keys, separated by dots; * is every element of a list."`
		MaxOutput string         `json:"max_output,omitempty" jsonschema_description:"Path of the largest output in tokens."`
		Answers   string         `json:"answers,omitempty"    jsonschema_description:"Path of the number of answers."`
		Stream    string         `json:"stream,omitempty"     jsonschema_description:"Path of the flag that asks for a stream."`
		Prompt    oneOrMore      `json:"prompt"               jsonschema_description:"Paths of what reaches the model, with everything below them."`
		Messages  string         `json:"messages,omitempty"   jsonschema_description:"Path of the elements of the list of messages."`
		Usage     *genericUsage  `json:"usage,omitempty"`
		Text      oneOrMore      `json:"text,omitempty"       jsonschema_description:"Paths of what is delivered, in an answer and in the events of a stream."`
		Type      string         `json:"type,omitempty"       jsonschema_description:"Path of an event's type."`
		Done      string         `json:"done,omitempty"       jsonschema_description:"The type of a stream's last event; [DONE] needs none."`
		Error     string         `json:"error,omitempty"      jsonschema_description:"Path of an error in an answer."`
		Limits    []genericLimit `json:"limits,omitempty"     jsonschema:"minItems=1,maxItems=32" jsonschema_description:"Headers that tell limits per minute."`
		Default   genericModel   `json:"default"              jsonschema_description:"What holds for its models, in tokens."`
	}
	genericUsage struct {
		Input      string `json:"input,omitempty"`
		CacheRead  string `json:"cache_read,omitempty"`
		CacheWrite string `json:"cache_write,omitempty"`
		Output     string `json:"output,omitempty"`
		Reasoning  string `json:"reasoning,omitempty"`
		Total      string `json:"total,omitempty"`
		CacheApart bool   `json:"cache_apart,omitempty" jsonschema:"default=false" jsonschema_description:"input is without what was read from and written to a cache."`
	}
	genericLimit struct {
		Unit      genericUnit `json:"unit"`
		Limit     string      `json:"limit"               jsonschema_description:"The header with the amount."`
		Remaining string      `json:"remaining,omitempty"`
		Reset     string      `json:"reset,omitempty"     jsonschema_description:"A duration such as 6m0s, a number of seconds, or an instant of RFC 3339."`
	}
	genericModel struct {
		Context    int64 `json:"context"               jsonschema:"minimum=1,maximum=1000000000000" jsonschema_description:"Largest prompt."`
		MaxOutput  int64 `json:"max_output"            jsonschema:"minimum=1,maximum=1000000000000" jsonschema_description:"Largest answer, if the call does not say."`
		CacheReads bool  `json:"cache_reads,omitempty" jsonschema:"default=false" jsonschema_description:"What was read from a cache counts as input."`
		Images     int64 `json:"images,omitempty"      jsonschema:"minimum=1,maximum=1000000000000" jsonschema_description:"Most tokens of one image. These four default to context."`
		Audio      int64 `json:"audio,omitempty"       jsonschema:"minimum=1,maximum=1000000000000"`
		Video      int64 `json:"video,omitempty"       jsonschema:"minimum=1,maximum=1000000000000"`
		Files      int64 `json:"files,omitempty"       jsonschema:"minimum=1,maximum=1000000000000"`
	}
	genericUnit string
	model       struct {
		Model     string       `json:"model"               jsonschema:"minLength=1,maxLength=1024,pattern=^[^*]*\\*?$" jsonschema_description:"Its name, or prefix*; * for any."`
		Policy    string       `json:"policy"              jsonschema_description:"The policy that counts its calls, under the upstream's owner."`
		Fallbacks oneOrMore    `json:"fallbacks,omitempty" jsonschema_description:"Models that are tried in this order while the quota is exhausted; UPSTREAM/MODEL of another upstream with the same profile. Each is counted by its own entry."`
		Cache     *answerCache `json:"cache,omitempty"`
	}
	answerCache struct {
		TTL    duration `json:"ttl"              jsonschema_description:"How long an answer is given again to a call that is the same byte for byte (1ms to 30d)."`
		Stale  duration `json:"stale,omitempty"  jsonschema_description:"How much longer, while the quota is exhausted. Default 0."`
		Shared bool     `json:"shared,omitempty" jsonschema:"default=false" jsonschema_description:"Between callers with different keys."`
	}
	circuit struct {
		Enabled   bool     `json:"enabled,omitempty"   jsonschema:"default=true" jsonschema_description:"false never stops calls."`
		Failures  int      `json:"failures,omitempty"  jsonschema:"minimum=1,maximum=1000,default=5" jsonschema_description:"Calls are stopped when failures outnumber successes by so many: in a row, for example."`
		Open      duration `json:"open,omitempty"      jsonschema_description:"How long they are stopped (1ms to 24h). Then one at a time may try. Default 60s."`
		Successes int      `json:"successes,omitempty" jsonschema:"minimum=1,maximum=1000,default=2" jsonschema_description:"In a row, until all may pass again."`
	}
	virtualKey struct {
		Name       string    `json:"name"                  jsonschema:"minLength=1,maxLength=128" jsonschema_description:"What rules (attr key), and the log of calls that fail, call it."`
		SecretEnv  string    `json:"secret_env,omitempty"  jsonschema_description:"The environment variable that holds the key, of at least 16 bytes."`
		SecretFile string    `json:"secret_file,omitempty" jsonschema_description:"The file that holds it."`
		SHA256     string    `json:"sha256,omitempty"      jsonschema:"pattern=^(sha256:)?[0-9a-fA-F]{64}$" jsonschema_description:"The SHA-256 of the key."`
		Team       string    `json:"team,omitempty"        jsonschema:"maxLength=1024" jsonschema_description:"For rules: attr team."`
		User       string    `json:"user,omitempty"        jsonschema:"maxLength=1024" jsonschema_description:"For rules: user."`
		Class      string    `json:"class,omitempty"       jsonschema:"maxLength=1024" jsonschema_description:"For rules: class."`
		Priority   int       `json:"priority,omitempty"    jsonschema:"minimum=0,maximum=9,default=0" jsonschema_description:"Of its calls. Drawgate-Priority can lower it."`
		Models     oneOrMore `json:"models,omitempty"      jsonschema_description:"What it may use: UPSTREAM/MODEL, with * at the end. Default: everything."`
		Others     oneOrMore `json:"others,omitempty"      jsonschema_description:"Which of the upstreams' others it may use: UPSTREAM/PATH, with * at the end. Default: all."`
	}
	prices struct {
		Currency string           `json:"currency,omitempty" jsonschema:"pattern=^[a-z]{1\\,8}$,default=usd" jsonschema_description:"Costs are counted in millionths of it: usd_micros."`
		Models   map[string]price `json:"models,omitempty"   jsonschema:"minProperties=1" jsonschema_description:"By the name of a model, or of its family. With any prices, a call of a model that has none is refused."`
	}
	price struct {
		Input      amount `json:"input"                 jsonschema_description:"Per million tokens of the prompt."`
		CacheRead  amount `json:"cache_read,omitempty"  jsonschema_description:"Of tokens that were read from a cache. Default: as input."`
		CacheWrite amount `json:"cache_write,omitempty" jsonschema_description:"Of tokens that were written to a cache. Default: a quarter more than input."`
		Output     amount `json:"output,omitempty"      jsonschema_description:"Of tokens of the answer, reasoning included."`
	}
	amount string
)

func (genericUnit) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Enum: []any{"requests", "tokens", "input_tokens", "output_tokens"}}
}

func (amount) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "number", Minimum: "0", Maximum: "1000000"},
		{Type: "string", Pattern: `^[0-9]{1,7}(\.[0-9]{1,6})?$`, Examples: []any{"2.50"}},
	}}
}

func (virtualKey) JSONSchemaExtend(s *jsonschema.Schema) {
	need := func(key string) *jsonschema.Schema { return &jsonschema.Schema{Required: []string{key}} }
	s.OneOf = []*jsonschema.Schema{need("secret_env"), need("secret_file"), need("sha256")}
	s.Description = "A virtual key, named by an environment variable or a file, or given as its SHA-256."
}
