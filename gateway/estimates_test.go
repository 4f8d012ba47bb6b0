package gateway_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
)

var update = flag.Bool("update", false, "write what the calls of testdata/estimates reserve and are settled with")

// row is what a call of the table has beyond its prompt: a field, a part of its message, or an
// element of its input.
type row struct {
	API, At, JSON string
}

// table returns the rows of a provider: at least 60, or those in which one that is like OpenAI
// differs.
func table(t *testing.T, provider string) (rows []row) {
	t.Helper()
	text, err := os.ReadFile("testdata/estimates/" + provider + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if len(models[r.API]) != 2 {
			t.Fatalf("%s: models has no two of the API %q", provider, r.API)
		}
		rows = append(rows, r)
	}
	if least := map[bool]int{true: 4, false: 60}[slices.Contains(like, provider)]; len(rows) < least {
		t.Fatalf("%s: %d rows, want %d", provider, len(rows), least)
	}
	return rows
}

// twins are ways to write what a row has that no provider documents.
var twins = []struct {
	name string
	of   func(text string) string
}{
	{"plain", func(text string) string { return text }},
	{"an object for a list", func(text string) string {
		text = strings.Replace(text, "[{", "{", 1)
		return strings.Replace(text, "}]", "}", 1)
	}},
	{"other case", func(text string) string {
		i := strings.IndexByte(text, '"') + 1
		return text[:i] + strings.ToUpper(text[i:i+1]) + text[i+1:]
	}},
	{"nested", func(text string) string {
		name, value, ok := strings.Cut(text, ":")
		if !ok || strings.HasPrefix(text, "{") {
			return "[" + text + "]"
		}
		return name + ":[" + strings.Replace(value, ",\"", "],\"", 1) +
			strings.Repeat("]", 1-min(1, strings.Count(value, ",\"")))
	}},
	{"twice", func(text string) string { return text + "," + text }},
	{"one more field", func(text string) string {
		if i := strings.IndexByte(text, '{'); i >= 0 && !strings.HasPrefix(text[i:], "{}") {
			return text[:i+1] + `"zz_extra":{"a":1},` + text[i+1:]
		}
		return text + `,"zz_extra":1`
	}},
}

// models of the table, by API: the first reasons.
var models = withModels(map[string][]string{
	"chat": {"gpt-5-mini", "gpt-4o"}, "responses": {"gpt-5", "gpt-4.1"}, "messages": {
		"claude-opus-4-1",
		"claude-sonnet-4-5",
	},
	"generate": {"gemini-2.5-pro", "gemini-2.5-flash"},
})

// withModels adds those of providers that are like OpenAI.
func withModels(models map[string][]string) map[string][]string {
	for _, name := range like {
		models[name] = []string{name + "-large", name + "-small"}
	}
	return models
}

// reasons reports whether a model reasons for a call of some rows.
func reasons(t *testing.T, api, model string, rows []row) bool {
	t.Helper()
	switch api {
	case "chat", "responses":
		return model == models[api][0]
	case "messages":
		return slices.ContainsFunc(rows, func(r row) bool {
			return strings.HasPrefix(r.JSON, `"thinking"`) && !strings.Contains(r.JSON, "disabled")
		})
	case "generate":
		return true
	}
	if slices.Contains(like, api) {
		return true
	}
	t.Fatalf("no rule for the API %q", api)
	return false
}

// written returns the path and the body of a call with some rows, which may be no JSON: a twin need
// not be.
func written(t *testing.T, api, model string, stream bool, prompt string, rows []row, twin func(string) string) (path,
	body string,
) {
	t.Helper()
	add := map[string]string{}
	for _, r := range rows {
		add[r.At] += "," + twin(r.JSON)
	}
	text, _ := json.Marshal(prompt)
	flow := fmt.Sprintf(`"stream":%v`, stream)
	chat := "/openai/v1/chat/completions"
	if slices.Contains(like, api) {
		api, chat = "chat", "/"+api+apis[api].path
	}
	switch api {
	case "chat":
		return chat,
			fmt.Sprintf(`{"model":%q,%s,"messages":[{"role":"user","content":[{"type":"text","text":%s}%s]}]%s}`,
				model, flow, text, add["part"], add["field"])
	case "responses":
		return "/openai/v1/responses",
			fmt.Sprintf(`{"model":%q,%s,"input":[{"role":"user","content":[{"type":"input_text","text":%s}%s]}%s]%s}`,
				model, flow, text, add["part"], add["item"], add["field"])
	case "messages":
		return "/anthropic/v1/messages", fmt.Sprintf(`{"model":%q,%s,"max_tokens":3000,"messages":[{"role":"user",`+
			`"content":[{"type":"text","text":%s}%s]}]%s}`, model, flow, text, add["part"], add["field"])
	case "generate":
		path = "/gemini/v1beta/models/" + model + ":generateContent"
		if stream {
			path = "/gemini/v1beta/models/" + model + ":streamGenerateContent?alt=sse"
		}
		return path, fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":%s}%s]}]%s}`, text, add["part"],
			add["field"])
	}
	t.Fatalf("no way to write a call of the API %q", api)
	return "", ""
}

// referee compares what calls are settled with and what the provider bills.
type referee struct {
	*bench
	n      int
	money  bool
	calls  []simulator.Call // that reached the provider
	turned int64            // calls that did not, since a circuit was open
}

// judged makes a call, and returns what it reserved and was settled with, in tokens and in money:
// "refused" if it did not reach the provider.
func (b *referee) judged(path, body string, after int, stay time.Duration) (reserved, settled string, got *leaver) {
	b.Helper()
	b.n++
	key := fmt.Sprintf("call-%d", b.n)
	b.sim.Reset() // a copy of all calls, after each of them, would take most of the test's time
	r := b.raw(b.Context(), http.MethodPost, path, body, "Authorization: Bearer "+alice, "X-Api-Key: "+alice,
		"X-Goog-Api-Key: "+alice, "X-Call: "+key)
	got = b.visit(r, after, stay)
	calls := b.sim.Calls()
	b.calls = append(b.calls, calls...)
	if len(calls) == 0 {
		switch {
		case got.status < http.StatusBadRequest:
			b.Errorf("%s %s: %d without a call", path, body, got.status)
		case got.status == http.StatusServiceUnavailable:
			b.turned++
		}
		return "refused", "", got
	}
	used, held, last := b.settledWith(key), b.reservedFor(), calls[len(calls)-1]
	reserved, settled = amounts(held), amounts(used)
	if !billed(&last) {
		return reserved, settled, got
	}
	at := fmt.Sprintf("%s %s\nleft after %d, %v, %s: settled with %v of %v, the provider bills %d: %+v", path, body,
		after, stay, last.Outcome, used, held, bill(&last), last)
	for unit, n := range b.counted(&last) {
		if unit != drawgate.UnitRequests && used[unit] < n {
			b.Errorf("too little, %d %s: %s", n, unit, at)
		}
	}
	if b.money && len(last.Surcharges) > 0 {
		b.Errorf("%v cost more than the prices say: %s", last.Surcharges, at)
	}
	if last.Outcome == simulator.Answered && last.Fault != simulator.FaultNoUsage && got.err == nil && b.money &&
		used["usd_micros"] != bill(&last) {
		b.Errorf("a full answer is not settled with its bill: %s", at)
	}
	return reserved, settled, got
}

// billed reports whether the provider bills a call.
func billed(c *simulator.Call) bool {
	return c.Outcome != simulator.Rejected && c.Outcome != simulator.Failed
}

// profile returns the profile of a call's provider.
func (b *referee) profile(c *simulator.Call) *llm.Profile {
	b.Helper()
	p, ok := llm.ByName(string(c.Provider))
	if !ok {
		b.Fatalf("a call of %q, which is no provider", c.Provider)
	}
	return p
}

// counted returns what the provider counts of a call, by unit.
func (b *referee) counted(c *simulator.Call) map[string]int64 {
	b.Helper()
	input := c.Input
	if !simulator.DefaultCharging(c.Provider).CacheReads {
		input -= c.CacheRead
	}
	units := map[string]int64{}
	for _, unit := range b.profile(c).Units {
		switch unit {
		case drawgate.UnitRequests:
			units[unit] = 1
		case llm.UnitTokens:
			units[unit] = input + c.Output
		case llm.UnitInputTokens:
			units[unit] = input
		case llm.UnitOutputTokens:
			units[unit] = c.Output
		case llm.UnitImages:
			if c.Images > 0 {
				units[unit] = c.Images
			}
		case llm.UnitBytes: // of what is stored, which these calls are not for
		default:
			b.Fatalf("no rule for %s of %s", unit, c.Provider)
		}
	}
	if b.money {
		units["usd_micros"] = bill(c)
	}
	return units
}

// audited lets package audit judge the ledger of all calls, which are within one month. It must
// know of each call; of no unit may the least that it finds be more than the provider counted, nor
// the most be less. So a limit of what was counted is never exceeded for certain, and it is never
// certain that a limit of one unit less was kept.
func (b *referee) audited(dir string) {
	b.Helper()
	b.h.Close()
	if err := b.ledger.Close(); err != nil {
		b.Fatal(err)
	}
	total, names := map[simulator.Provider]map[string]int64{}, map[simulator.Provider][]string{} // of families
	for i := range b.calls {
		c := &b.calls[i]
		if name := b.profile(c).Family(c.Model).Name; !slices.Contains(names[c.Provider], name) {
			names[c.Provider] = append(names[c.Provider], name)
		}
		if !billed(c) {
			continue
		}
		if total[c.Provider] == nil {
			total[c.Provider] = map[string]int64{}
		}
		for unit, n := range b.counted(c) {
			total[c.Provider][unit] += n
		}
	}
	var quotas []audit.Quota
	for provider, units := range total {
		q := audit.Quota{Name: string(provider), Policy: "upstream", Models: names[provider], Shared: true}
		for unit, n := range units {
			for less, name := range []string{"enough", "short"} {
				q.Limits = append(q.Limits,
					audit.Limit{Name: name, Unit: unit, Amount: n - int64(less), Window: audit.Month})
			}
		}
		quotas = append(quotas, q)
	}
	r, err := audit.Replay(b.Context(), []string{dir}, quotas, nil)
	if err != nil {
		b.Fatal(err)
	}
	missing := r.Missing + r.Damaged + r.Orphans + r.Late + r.Unknown + r.Uncounted + r.Unended + r.Refunded
	if n := int64(len(b.calls)); r.Calls != n || r.Settled != n || r.Refused != b.turned || missing != 0 {
		b.Errorf("%d calls reached the provider, %d met an open circuit; the audit has %+v", n, b.turned, r)
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		n := total[simulator.Provider(l.Quota)][l.Unit]
		if l.Least.Units > n || l.Most.Units < n || l.Total < n {
			b.Errorf("the provider counts %d %s of %s; the audit finds %+v", n, l.Unit, l.Quota, l)
		}
		if l.Limit == "enough" && l.Verdict == audit.Over || l.Limit == "short" && l.Verdict == audit.Within {
			b.Errorf("the provider counts %d %s of %s; the audit says %q of %s", n, l.Unit, l.Quota, l.Verdict,
				l.Counts)
		}
	}
}

// amounts writes units.
func amounts(units map[string]int64) string {
	var all []string
	for _, unit := range []string{llm.UnitTokens, llm.UnitInputTokens, llm.UnitOutputTokens, "usd_micros"} {
		if n := units[unit]; n > 0 {
			all = append(all, fmt.Sprintf("%s %d", unit, n))
		}
	}
	return strings.Join(all, ", ")
}

// quietly makes a gateway log nothing: callers leave thousands of answers.
func quietly(change func(s *setup)) func(s *setup) {
	return func(s *setup) {
		change(s)
		s.options.Logger = slog.New(slog.DiscardHandler)
	}
}

func allModels() (all []string) {
	for _, m := range models {
		all = append(all, m...)
	}
	return all
}

// TestEstimates: each call of the tables, and its malformed twins, reserves and is settled with
// what testdata says: after a full answer, when its caller leaves before it, in its middle and
// after its last token, and when the provider cuts it. Nothing is settled below what the provider
// bills, what costs more than the prices say does not reach it, and a full answer is settled with
// its bill.
//
// req: B12 C1 D12
func TestEstimates(t *testing.T) {
	needs.NoRace(t) // calls one after the other
	t.Parallel()
	for _, provider := range llm.Names() {
		if testing.Short() && provider != "anthropic" { // the others are much like it
			continue
		}
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			rows := table(t, provider)
			dir := t.TempDir()
			inBubble(t, func(s *setup) {
				quietly(counting(allModels()...))(s)
				s.ledger = dir
			}, func(t *testing.T, b *bench) {
				ref := &referee{bench: b, money: true}
				var out bytes.Buffer
				const prompt = "What does a gate do?\nsimulate: stored=20000 output=40 "
				for _, r := range rows {
					for i, twin := range twins {
						for _, model := range models[r.API][:2-min(i, 1)] { // twins are of the model that reasons
							call := func(more string, after int, stay time.Duration) (string, string, *leaver) {
								if reasons(t, r.API, model, []row{r}) {
									more += " thoughts=300"
								}
								path, body := written(t, r.API, model, true, prompt+more, []row{r}, twin.of)
								return ref.judged(path, body, after, stay)
							}
							held, full, got := call("", -1, 0)
							if held == "refused" {
								fmt.Fprintf(&out, "%s %s (%s): refused\n", model, r.JSON, twin.name)
								continue
							}
							_, before, _ := call("delay=1s", -1, time.Second/2)
							_, middle, _ := call("", got.got.Len()/2, 0)
							_, last, _ := call("", got.got.Len(), 0)
							_, cut, _ := call("fault=cut after=3", -1, 0)
							fmt.Fprintf(&out,
								"%s %s (%s): %s\n\tfull %s\n\tbefore %s\n\tmiddle %s\n\tlast %s\n\tcut %s\n", model,
								r.JSON, twin.name, held, full, before, middle, last, cut)
						}
					}
				}
				if i := slices.IndexFunc(ref.calls, func(c simulator.Call) bool {
					return string(c.Provider) != provider
				}); i >= 0 {
					t.Fatalf("the table of %s has calls of %q", provider, ref.calls[i].Provider)
				}
				ref.audited(dir)
				file := "testdata/estimates/" + provider + ".txt"
				if *update {
					if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(out.Bytes(), want) {
					t.Errorf("%s is not what the calls reserve and are settled with: look at it with go test -run "+
						"TestEstimates ./gateway -update", file)
				}
			})
		})
	}
}

// TestRandomEstimates: calls that are put together from the tables at random, which are answered,
// left and cut at random, with and without prices, by bounds and by what is likely: none is settled
// below what the provider bills.
//
// req: B12 C1 D12
func TestRandomEstimates(t *testing.T) {
	needs.NoRace(t) // calls one after the other
	t.Parallel()
	calls := 500
	if needs.Long() {
		calls = 10_000
	}
	rows := map[string][]row{}
	for _, provider := range llm.Names() {
		for _, r := range table(t, provider) {
			rows[r.API] = append(rows[r.API], r)
		}
	}
	for _, name := range like {
		rows[name] = append(rows[name], rows["chat"]...)
	}
	for part := range 4 {
		money, likely := part%2 == 0, part >= 2
		t.Run(fmt.Sprintf("prices %v, likely %v", money, likely), func(t *testing.T) {
			t.Parallel()
			priced := allModels()
			if !money {
				priced = nil
			}
			dir := t.TempDir()
			inBubble(t, func(s *setup) {
				quietly(counting(priced...))(s)
				s.ledger = dir
				for i := range s.config.Upstreams {
					s.config.Upstreams[i].Likely = likely
				}
			}, func(t *testing.T, b *bench) {
				ref := &referee{bench: b, money: money}
				random := rand.New(rand.NewPCG(uint64(part), 4))
				apis := slices.DeleteFunc(slices.Sorted(maps.Keys(rows)),
					func(api string) bool { return slices.Contains(like, api) })
				reached := 0
				for range calls / 4 {
					api := like[random.IntN(len(like))]
					if i := random.IntN(len(apis) + 1); i < len(apis) {
						api = apis[i]
					}
					var some []row
					for range 1 + random.IntN(3) {
						some = append(some, rows[api][random.IntN(len(rows[api]))])
					}
					twin := twins[0]
					if random.IntN(3) == 0 {
						twin = twins[random.IntN(len(twins))]
					}
					prompt := strings.Repeat("Say what was decided, at 10:30 on 2026-01-15! ", random.IntN(40)) +
						fmt.Sprintf("\nsimulate: stored=%d output=%d size=%d cache_read=%d", random.IntN(60_000),
							1+random.IntN(200), 1+random.IntN(4), random.IntN(30))
					after, stay := -1, time.Duration(0)
					switch random.IntN(5) {
					case 0:
						after = 1 + random.IntN(12_000)
					case 1:
						prompt, stay = prompt+" delay=1s", time.Duration(1+random.IntN(999))*time.Millisecond
					case 2:
						prompt += fmt.Sprintf(" fault=cut after=%d", random.IntN(40))
					case 3:
						prompt += " fault=no_usage"
					}
					model := models[api][random.IntN(2)]
					if reasons(t, api, model, some) {
						prompt += fmt.Sprintf(" thoughts=%d", random.IntN(500))
					}
					path, body := written(t, api, model, random.IntN(4) > 0, prompt, some, twin.of)
					if held, _, _ := ref.judged(path, body, after, stay); held != "refused" {
						reached++
					}
				}
				ref.audited(dir)
				if reached < calls/20 {
					t.Errorf("%d of %d calls reached the provider", reached, calls/4)
				}
			})
		})
	}
}
