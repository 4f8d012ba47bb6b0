package config_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/drawgate/drawgate/config"
)

var update = flag.Bool("update", false, "write schema.json and the golden files")

// These types describe the file for its schema: names, order and comments of the keys. The decoder
// reads the file without them, because it needs positions; TestEveryKeyIsRead compares the two.
type (
	file struct {
		Enabled      bool              `json:"enabled,omitempty" jsonschema:"default=true" jsonschema_description:"false switches all limits off: everything passes and nothing is counted."`
		Store        string            `json:"store,omitempty"  jsonschema_description:"Where usage is stored: memory: (this process only), sqlite:///absolute/path or sqlite:path/relative/to/this/file (one machine, survives crashes), redis://host:6379/0, rediss://… or dynamodb://TABLE?region=REGION (any number of processes). Default memory:."`
		Prefix       string            `json:"prefix,omitempty" jsonschema:"pattern=^[A-Za-z0-9._:/-]{1\\,64}$" jsonschema_description:"What every key in a shared store starts with, so that several installations can share it."`
		MaxBuckets   int64             `json:"max_buckets,omitempty" jsonschema:"minimum=1,maximum=1000000000" jsonschema_description:"Most buckets in use at once in the store memory:, of 80 bytes (one bucket limit) to 900 each. Default 10 million. Takes that need another bucket are refused; a bucket that still limits is never dropped."`
		Instances    *instances        `json:"instances,omitempty" jsonschema_description:"How many processes share the limits: a number, or auto to count them in the store. While the store is unavailable each admits its share: see fallback. Default: auto on Redis and DynamoDB, 1 on any other store."`
		StoreTimeout duration          `json:"store_timeout,omitempty" jsonschema_description:"How long a take that does not wait may take, all attempts included (1ms to 1m). Then the fallback decides. Default 40ms, on SQLite 500ms, on DynamoDB 1s."`
		Start        starting          `json:"start,omitempty"`
		StartFull    bool              `json:"start_full,omitempty" jsonschema:"default=false" jsonschema_description:"Means start: full."`
		StoreMark    string            `json:"store_mark,omitempty" jsonschema:"enum=optional,enum=required,default=optional" jsonschema_description:"Redis and Valkey only. required: while the server has no mark of this store the store is unavailable and the fallback decides: before 'drawgate store init', and again after the server lost its data. optional: a missing mark is made, and a process that had seen another one logs an error."`
		WarnEvery    duration          `json:"warn_every,omitempty" jsonschema_description:"At most one warning per this time while the store is unavailable (1s to 24h). Default 5m."`
		Policies     map[string]policy `json:"policies,omitempty" jsonschema_description:"Policies by name. A policy is a set of limits that must all pass, and how callers wait for them."`
		Rules        []rule            `json:"rules,omitempty" jsonschema:"maxItems=10000" jsonschema_description:"Which requests are counted by which policies, under which keys. Rules are checked in order, and a policy that an earlier rule applied is not applied again: put special rules first."`
		APIKeys      *apiKeys          `json:"api_keys,omitempty"`
		Queue        *queue            `json:"queue,omitempty"`
		Server       *server           `json:"server,omitempty"`
		Envoy        *envoy            `json:"envoy,omitempty"`
		Telemetry    *telemetry        `json:"telemetry,omitempty"`
		Gateway      *gateway          `json:"gateway,omitempty"`
	}
	policy struct {
		Limits    []limit    `json:"limits" jsonschema:"minItems=1,maxItems=6" jsonschema_description:"The limits that must all pass. A take that one of them refuses costs nothing in the others."`
		Wait      *wait      `json:"wait,omitempty"`
		Fallback  fallback   `json:"fallback,omitempty"`
		Start     starting   `json:"start,omitempty"`
		Shadow    bool       `json:"shadow,omitempty" jsonschema:"default=false" jsonschema_description:"Evaluated and reported with buckets of its own, never enforced."`
		Disabled  bool       `json:"disabled,omitempty" jsonschema:"default=false" jsonschema_description:"Switched off from the start, and left out of every take."`
		Overrides []override `json:"overrides,omitempty" jsonschema:"minItems=1,maxItems=10000" jsonschema_description:"Other amounts for some keys. The most specific one decides."`
	}
	limit struct {
		Name        string     `json:"name"                  jsonschema:"pattern=^[A-Za-z0-9._-]{1\\,64}$" jsonschema_description:"What messages and metrics call the limit, such as rpm. Unique in its policy. Another name is another limit, which starts unused."`
		Unit        string     `json:"unit,omitempty"        jsonschema:"pattern=^[A-Za-z0-9._-]{1\\,64}$,default=requests" jsonschema_description:"What is counted: requests, input_tokens, output_tokens, usd_micros, or a word of your own."`
		Bucket      duration   `json:"bucket,omitempty"      jsonschema_description:"Kind: a rate with burst. The period in which 'amount' units come back. In any time T at most burst + amount·T/period pass, so with burst = amount up to twice the amount in one period."`
		Rolling     duration   `json:"rolling,omitempty"     jsonschema_description:"Kind: a hard cap. At most 'amount' in every interval of this length, wherever it starts. The right kind for an upstream's quota. 1d is the last 24 hours."`
		Calendar    string     `json:"calendar,omitempty"    jsonschema:"enum=minute,enum=hour,enum=day,enum=week,enum=month" jsonschema_description:"Kind: at most 'amount' per minute, hour, day, week (from Monday) or month of the calendar in 'zone', including daylight saving time."`
		Concurrency *count0    `json:"concurrency,omitempty" jsonschema_description:"Kind: at most this many units held at once. The policy can then only be used with reservations."`
		Amount      *count0    `json:"amount,omitempty"      jsonschema_description:"How many units; 0 lets nothing pass. Changing it keeps what is used."`
		Burst       *count     `json:"burst,omitempty"       jsonschema_description:"Bucket: units available at once after an idle period. Default: the amount."`
		Zone        string     `json:"zone,omitempty"        jsonschema:"default=UTC,example=America/Los_Angeles" jsonschema_description:"Calendar: a name from the IANA time zone database."`
		Anchor      int        `json:"anchor,omitempty"      jsonschema:"minimum=1,maximum=31,default=1" jsonschema_description:"Calendar month: the day on which it starts. In a month without that day, the last day."`
		Precision   precision  `json:"precision,omitempty"   jsonschema_description:"Rolling: how finely takes are distinguished: a fraction of the window (100 to 10000), or exact. The error is always on the safe side. Default 128; exact on SQLite."`
		Charge      string     `json:"charge,omitempty"      jsonschema:"enum=start,enum=end" jsonschema_description:"When a unit counts: at the decision (start) or when it is settled (end; until then it is held). Default: end for output_tokens and money, start for all others."`
		Margin      duration   `json:"margin,omitempty"      jsonschema_description:"How long after the decision a unit may reach an upstream that also counts it. At most half a window, and 10m. 2s suits an upstream API. Default 0."`
		Headroom    *share     `json:"headroom,omitempty"    jsonschema_description:"Always kept unused: a number of units, or a percentage of the amount (rounded up). Default 0."`
		Keep        priorities `json:"keep,omitempty"`
		Fallback    fallback   `json:"fallback,omitempty"`
	}
	wait struct {
		UpTo    duration   `json:"up_to,omitempty"   jsonschema_description:"Longest wait if the caller has no earlier deadline. Default: no bound."`
		Queue   int        `json:"queue,omitempty"   jsonschema:"minimum=1,maximum=1000000,default=10000" jsonschema_description:"Most waiters per bucket and process. Further callers are refused immediately."`
		Backoff []duration `json:"backoff,omitempty" jsonschema:"minItems=1,maxItems=32" jsonschema_description:"Fixed waits between attempts, the last one repeated (each 1ms to 24h), instead of waiting until the take is known to fit."`
		Barge   bool       `json:"barge,omitempty"   jsonschema:"default=false" jsonschema_description:"Whether callers that do not wait may overtake those that do."`
	}
	duration   string
	count      int64
	precision  string
	share      string
	priorities map[string]share
)

func (file) JSONSchemaExtend(s *jsonschema.Schema) {
	least, most := uint64(1), uint64(128)
	s.Title = "Drawgate"
	if policies, ok := s.Properties.Get("policies"); ok {
		policies.PropertyNames = &jsonschema.Schema{MinLength: &least, MaxLength: &most}
	}
}

func (wait) JSONSchemaExtend(s *jsonschema.Schema) { s.Description = "How callers wait." }

func (duration) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|μs|ms|s|m|h|d|w))+$`, Examples: []any{"90s", "1m", "12h", "7d"}},
		{Const: 0},
	}}
}

// count is a positive number. Editors that follow YAML 1.2 strictly read 250_000 as a text.
func (count) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "integer", Minimum: "1", Maximum: "1000000000000"},
		{Type: "string", Pattern: `^[1-9][0-9]*(_[0-9]+)+$`},
	}}
}

func (precision) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "integer", Minimum: "100", Maximum: "10000"}, {Const: "exact"}}}
}

func shareSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "integer", Minimum: "0", Maximum: "1000000000000"},
		{Type: "string", Pattern: `^([0-9]|[1-9][0-9])(\.[0-9]{1,4})?%$|^[1-9][0-9]*(_[0-9]+)+$`, Examples: []any{"20%", "12.5%"}},
	}}
}

func (share) JSONSchema() *jsonschema.Schema { return shareSchema() }

func (priorities) JSONSchema() *jsonschema.Schema {
	least := uint64(1)
	return &jsonschema.Schema{
		Type: "object", MinProperties: &least, AdditionalProperties: jsonschema.FalseSchema,
		PatternProperties: map[string]*jsonschema.Schema{"^[1-9]$": shareSchema()},
		Description:       "What is kept, after the headroom, for takes of at least this priority (1 to 9): {7: 10%} leaves a tenth to priorities 7, 8 and 9.",
	}
}

func (limit) JSONSchemaExtend(s *jsonschema.Schema) {
	s.Description = "One rule: at most an amount of a unit. It has one of four kinds: bucket, rolling, calendar or concurrency."
	need := func(keys ...string) *jsonschema.Schema { return &jsonschema.Schema{Required: keys} }
	s.OneOf = []*jsonschema.Schema{need("bucket", "amount"), need("rolling", "amount"), need("calendar", "amount"), need("concurrency")}
	s.DependentRequired = map[string][]string{"burst": {"bucket"}, "zone": {"calendar"}, "anchor": {"calendar"}, "precision": {"rolling"}}
}

func generate(t *testing.T) []byte {
	t.Helper()
	r := jsonschema.Reflector{Anonymous: true, ExpandedStruct: true}
	s := r.Reflect(&file{})
	for name, text := range about {
		s.Definitions[name].Description = text
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

func TestSchemaIsUpToDate(t *testing.T) {
	t.Parallel()
	want := generate(t)
	if *update {
		if err := os.WriteFile("schema.json", want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(config.Schema(), want) {
		t.Error("schema.json is not what the types say: run go generate ./config")
	}
}

func compileSchema(t testing.TB) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(config.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("drawgate.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("drawgate.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// conforms checks a YAML file against the schema, as an editor does.
func conforms(t testing.TB, s *validator.Schema, data []byte) error {
	t.Helper()
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return err
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return s.Validate(doc)
}

// The schema and the parser accept every preset, and every YAML file of the repository with
// policies.
//
// req: C2, B2, D1
func TestEveryFileConformsToTheSchema(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	found := 0
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && e.Name() != ".." || slices.Contains([]string{"testdata", "benchmarks", "node_modules", "python"}, e.Name())):
			return filepath.SkipDir
		case e.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".yml":
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(data, []byte("policies:")) && !bytes.Contains(data, []byte("\npolicies:")) {
			return err
		}
		found++
		if err := conforms(t, s, data); err != nil {
			t.Errorf("%s: got %v, want it to conform to the schema", path, err)
		}
		if _, problems := config.Parse(path, data); len(problems) > 0 {
			t.Error(config.Problems(problems))
		}
		return nil
	})
	if err != nil || found < len(config.Presets()) {
		t.Errorf("%d files found, %v", found, err)
	}
}

// The decoder knows exactly the keys that the schema describes.
func TestEveryKeyIsRead(t *testing.T) {
	t.Parallel()
	var doc struct {
		Properties map[string]json.RawMessage
		Defs       map[string]struct{ Properties map[string]json.RawMessage } `json:"$defs"`
	}
	if err := json.Unmarshal(config.Schema(), &doc); err != nil {
		t.Fatal(err)
	}
	keys := func(m map[string]json.RawMessage) (list []string) {
		for k := range m {
			list = append(list, k)
		}
		slices.Sort(list)
		return list
	}
	def := func(name string) []string { return keys(doc.Defs[name].Properties) }
	cases := []struct {
		text string
		want []string
	}{
		{"zzzzzz: 1", keys(doc.Properties)},
		{"policies: {p: {zzzzzz: 1}}", def("policy")},
		{"policies: {p: {overrides: [{zzzzzz: 1}]}}", def("override")},
		{"policies: {p: {limits: [{zzzzzz: 1}]}}", def("limit")},
		{"policies: {p: {limits: [], wait: {zzzzz: 1}}}", def("wait")},
		{"rules: [{zzzzzz: 1}]", def("rule")},
		{"rules: [{match: {zzzzzz: 1}}]", def("match")},
		{"rules: [{schedule: {zzzzzz: 1}}]", def("schedule")},
		{"rules: [{apply: [{zzzzzz: 1}]}]", def("apply")},
		{"api_keys: {zzzzzz: 1}", def("apiKeys")},
		{"queue: {zzzzzz: 1}", def("queue")},
		{"server: {zzzzzz: 1}", def("server")},
		{"server: {tls: {zzzzzz: 1}}", def("tlsFiles")},
		{"server: {tokens: [{zzzzzz: 1}]}", def("token")},
		{"server: {proxies: {zzzzzz: 1}}", def("proxies")},
		{"server: {forward_auth: {zzzzzz: 1}}", def("forwardAuth")},
		{"envoy: {zzzzzz: 1}", def("envoy")},
		{"telemetry: {zzzzzz: 1}", def("telemetry")},
		{"telemetry: {watch: [{zzzzzz: 1}]}", def("watched")},
		{"telemetry: {webhook: {zzzzzz: 1}}", def("webhook")},
		{"telemetry: {cloudwatch: {zzzzzz: 1}}", def("cloudWatch")},
		{"gateway: {zzzzzz: 1}", def("gateway")},
		{"gateway: {upstreams: {openai: {zzzzzz: 1}}}", def("upstream")},
		{"gateway: {upstreams: {openai: {breaker: {zzzzzz: 1}}}}", def("circuit")},
		{"gateway: {upstreams: {openai: {models: [{zzzzzz: 1}]}}}", def("model")},
		{"gateway: {upstreams: {openai: {models: [{cache: {zzzzzz: 1}}]}}}", def("answerCache")},
		{"gateway: {keys: [{zzzzzz: 1}]}", def("virtualKey")},
		{"gateway: {prices: {zzzzzz: 1}}", def("prices")},
		{"gateway: {tls: {zzzzzz: 1}}", def("tlsFiles")},
		{"gateway: {ledger: {zzzzzz: 1}}", def("callLedger")},
		{"gateway: {incidents: {zzzzzz: 1}}", def("incidents")},
		{"gateway: {incidents: {sns: {zzzzzz: 1}}}", def("snsTopic")},
		{"gateway: {upstreams: {mine: {generic: {zzzzzz: 1}}}}", def("generic")},
		{"gateway: {upstreams: {mine: {generic: {usage: {zzzzzz: 1}}}}}", def("genericUsage")},
		{"gateway: {upstreams: {mine: {generic: {limits: [{zzzzzz: 1}]}}}}", def("genericLimit")},
		{"gateway: {upstreams: {mine: {generic: {default: {zzzzzz: 1}}}}}", def("genericModel")},
		{"gateway: {prices: {models: {m: {zzzzzz: 1}}}}", def("price")},
	}
	for _, c := range cases {
		text, want := c.text, c.want
		_, problems := config.Parse("f", []byte(text))
		known := ""
		for _, p := range problems {
			if rest, ok := strings.CutPrefix(p.Hint, "known keys: "); ok {
				known = rest
			}
		}
		got := strings.Split(known, ", ")
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || len(want) < 1 {
			t.Errorf("%s: the decoder reads %v, the schema describes %v", text, got, want)
		}
	}
}
