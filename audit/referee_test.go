package audit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/audit/ledgerfile"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// api is a provider, as the scenarios call it.
type api struct {
	provider   simulator.Provider
	profile    func() *llm.Profile
	model      string
	path, live string // of calls, and of those that stream
	body       string // %q is the prompt
	more       string // what makes it a stream
	units      []simulator.Dimension
}

var apis = []api{
	{
		simulator.Gemini, llm.Gemini, "gemini-2.5-flash", "/v1beta/models/gemini-2.5-flash:generateContent",
		"/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
		`{"contents":[{"role":"user","parts":[{"text":%q}]}],"generationConfig":{"maxOutputTokens":100}%s}`, "",
		[]simulator.Dimension{simulator.InputTokens},
	},
	{
		simulator.OpenAI, llm.OpenAI, "gpt-4o", "/v1/chat/completions", "/v1/chat/completions",
		`{"model":"gpt-4o","max_tokens":100,"messages":[{"role":"user","content":%q}]%s}`,
		`,"stream":true,"stream_options":{"include_usage":true}`,
		[]simulator.Dimension{simulator.Tokens},
	},
	{
		simulator.Anthropic, llm.Anthropic, "claude-sonnet-4-5", "/v1/messages", "/v1/messages",
		`{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[{"role":"user","content":%q}]%s}`, `,"stream":true`,
		[]simulator.Dimension{simulator.InputTokens, simulator.OutputTokens},
	},
}

// likes are those whose API is OpenAI's with differences.
var likes = func() (all []api) {
	for _, p := range []simulator.Provider{
		simulator.XAI, simulator.Mistral, simulator.DeepSeek, simulator.Groq, simulator.Together, simulator.VLLM,
		simulator.Ollama,
	} {
		a := apis[1]
		a.provider = p
		a.profile = func() *llm.Profile {
			profile, _ := llm.ByName(string(p))
			return profile
		}
		a.path = "/" + string(p) + a.path
		switch p {
		case simulator.Groq:
			a.path, a.more = "/groq/openai/v1/chat/completions", `,"stream":true`
		case simulator.Mistral, simulator.Together:
			a.more = `,"stream":true`
		}
		a.live = a.path
		all = append(all, a)
	}
	return all
}()

// Each provider has a call here.
func TestEachProvider(t *testing.T) {
	t.Parallel()
	for _, name := range llm.Names() {
		if !slices.ContainsFunc(slices.Concat(likes, apis), func(a api) bool { return string(a.provider) == name }) {
			t.Errorf("there is no call of %s: add one to apis", name)
		}
	}
}

// scenario is a provider with limits, and programs that call it.
type scenario struct {
	api     api
	limits  []simulator.Limit
	factors []int64 // by which our limits are higher than the provider's
	callers int
	calls   []load // one after the other, by each caller
	start   time.Time
	travel  time.Duration
	faults  []simulator.Fault
	seed    uint64
	leave   bool          // callers leave some answers
	kill    time.Duration // after which the first process is killed; 0: it is not
}

// load is one call.
type load struct {
	pause  time.Duration // before it
	words  int           // of the prompt
	output int
	delay  time.Duration // of the answer
	stream bool
}

const margin = 2 * time.Second

func drawScenario(t *rapid.T) *scenario {
	s := &scenario{api: rapid.SampledFrom(slices.Concat(apis, likes[:1])).Draw(t, "api")}
	if s.api.provider == likes[0].provider { // as often as each of the others
		s.api = rapid.SampledFrom(likes).Draw(t, "like OpenAI")
	}
	minutes := rapid.SampledFrom([]simulator.Window{simulator.Rolling, simulator.Aligned, simulator.Bucket}).Draw(t,
		"minutes")
	s.limits = []simulator.Limit{{
		Name: "rpm", Dimension: simulator.Requests,
		Amount: rapid.Int64Range(2, 9).Draw(t, "rpm"), Window: minutes, Period: time.Minute,
	}}
	if rapid.Bool().Draw(t, "tokens") {
		for _, u := range s.api.units {
			s.limits = append(s.limits, simulator.Limit{
				Name: string(u), Dimension: u,
				Amount: rapid.Int64Range(1500, 6000).Draw(t, "tpm"), Window: minutes, Period: time.Minute,
			})
		}
	}
	zone := rapid.SampledFrom([]string{"America/Los_Angeles", "UTC", "America/Sao_Paulo", "Asia/Kathmandu"}).Draw(t,
		"zone")
	if rapid.Bool().Draw(t, "day") {
		s.limits = append(s.limits, simulator.Limit{
			Name: "rpd", Dimension: simulator.Requests,
			Amount: rapid.Int64Range(5, 40).Draw(t, "rpd"), Window: simulator.Day, Zone: zone,
		})
	}
	loc, _ := time.LoadLocation(zone)
	// Around midnight, before days on which the clocks may change.
	day := rapid.SampledFrom([]time.Time{
		time.Date(2026, 3, 8, 0, 0, 0, 0, loc),
		time.Date(2026, 11, 1, 0, 0, 0, 0, loc), time.Date(2026, 2, 1, 0, 0, 0, 0, loc),
	}).Draw(t, "day")
	s.start = day.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "before")) * time.Second)
	right := rapid.Bool().Draw(t, "right")
	for range s.limits {
		s.factors = append(s.factors, 1)
		if !right {
			s.factors[len(s.factors)-1] = rapid.SampledFrom([]int64{10, 3, 1}).Draw(t, "factor")
		}
	}
	s.callers = rapid.IntRange(1, 4).Draw(t, "callers")
	s.travel = rapid.SampledFrom([]time.Duration{
		0, time.Millisecond, 700 * time.Millisecond,
		1500 * time.Millisecond,
	}).Draw(t, "travel")
	s.seed = rapid.Uint64Range(1, 1000).Draw(t, "seed")
	s.leave = rapid.Bool().Draw(t, "leave")
	if rapid.IntRange(0, 2).Draw(t, "killed") == 0 {
		s.kill = time.Duration(rapid.IntRange(1, 200_000).Draw(t, "kill")) * time.Millisecond
	}
	for _, k := range []simulator.FaultKind{
		simulator.FaultCut, simulator.FaultNoUsage, simulator.FaultInternal,
		simulator.FaultClose,
	} {
		if rapid.IntRange(0, 3).Draw(t, string(k)) == 0 {
			s.faults = append(s.faults, simulator.Fault{Kind: k, Rate: 0.15, After: 2})
		}
	}
	s.calls = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) load {
		return load{
			pause: time.Duration(rapid.IntRange(0, 12_000).Draw(t, "pause")) * time.Millisecond,
			words: rapid.IntRange(1, 400).Draw(t, "words"), output: rapid.IntRange(1, 100).Draw(t, "output"),
			delay:  time.Duration(rapid.SampledFrom([]int{1, 100, 3000}).Draw(t, "delay")) * time.Millisecond,
			stream: rapid.Bool().Draw(t, "stream"),
		}
	}), 20, 50).Draw(t, "calls")
	return s
}

// family is what the model is counted as.
func (s *scenario) family() string {
	f := s.api.profile().Family(s.api.model)
	return f.Name
}

// policy is what we hold, which has the provider's limits times the factor.
func (s *scenario) policy() drawgate.Policy {
	p := drawgate.Policy{Name: s.family()}
	for i, l := range s.limits {
		mine := drawgate.RollingLimit(l.Name, l.Amount*s.factors[i], time.Minute).Of(string(l.Dimension))
		mine.Precision = drawgate.Exact
		if l.Window == simulator.Bucket {
			mine = drawgate.BucketLimit(l.Name, l.Amount*s.factors[i], time.Minute, 0).Of(string(l.Dimension))
		}
		if l.Window == simulator.Day {
			mine = drawgate.CalendarLimit(l.Name, l.Amount*s.factors[i], drawgate.Day, l.Zone).Of(string(l.Dimension))
		}
		mine.Margin = margin
		// OpenAI charges what a call used beyond its own estimate when the call has ended.
		if l.Dimension == simulator.Tokens || l.Dimension == simulator.OutputTokens {
			mine.Charge = drawgate.ChargeEnd
		}
		p.Limits = append(p.Limits, mine)
	}
	return p
}

// quotas are the provider's limits, for the audit.
func (s *scenario) quotas(t *testing.T) []audit.Quota {
	t.Helper()
	q := audit.Quota{Name: "quota", Models: []string{s.family()}}
	for _, l := range s.limits {
		zone, err := time.LoadLocation(l.Zone)
		if err != nil {
			t.Fatal(err)
		}
		q.Limits = append(q.Limits, audit.Limit{
			Name: l.Name, Unit: string(l.Dimension), Amount: l.Amount,
			Window: audit.Window(l.Window), Zone: zone, Margin: margin,
		})
	}
	return []audit.Quota{q}
}

// play lets the callers call the provider, and returns it, and the folder of the ledger.
func (s *scenario) play(t *testing.T) (*simulator.Server, string) {
	t.Helper()
	time.Sleep(time.Until(s.start))
	sim, err := simulator.New(&simulator.Options{
		Quotas: []simulator.Quota{{Provider: s.api.provider, Name: "quota", Models: []string{"*"}, Limits: s.limits}},
		Travel: s.travel, Seed: s.seed, Faults: s.faults,
	})
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(nil)
	defer store.Close()
	dir := t.TempDir()
	var over []func() // what happens when all ledgers are closed
	defer func() {
		for _, f := range over {
			f()
		}
	}()
	var group sync.WaitGroup
	for i := range s.callers {
		lim, err := drawgate.New(store, s.policy(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		ledger, err := ledgerfile.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ledger.Close()
		base, quota := sim.Transport(), outbound.Quota(outbound.PerModel("project", lim))
		if i == 0 && s.kill > 0 {
			p := newProcess(t, base, quota, dir, s.kill)
			base, quota, over = p, p, append(over, func() { p.bury(t) })
		}
		client := outbound.New(quota, &outbound.Options{
			Upstream: "provider", Owner: "project", Observer: ledger.Observer(),
			Breaker: outbound.Breaker{Failures: -1},
		})
		rt := outbound.NewTransport(client, s.api.profile(), &outbound.TransportOptions{
			Base: base,
			Call: func(_ *http.Request, _ *llm.Call, c *outbound.Call) error { c.NoWait = true; return nil },
		})
		group.Go(func() {
			time.Sleep(time.Duration(i) * 37 * time.Millisecond)
			for k, l := range s.calls {
				time.Sleep(l.pause)
				s.call(t.Context(), rt, l, s.leave && k%5 == 0)
			}
		})
	}
	group.Wait()
	synctest.Wait()
	return sim, dir
}

// errKilled is of calls of a process that is not there any more.
var errKilled = errors.New("this process was killed")

// process is one that is killed after a while: it sends nothing more, takes and settles nothing,
// and adds nothing to its ledger.
type process struct {
	base   http.RoundTripper
	quota  outbound.Quota
	ledger string
	dead   atomic.Bool
	kept   []byte // of the ledger
}

// newProcess returns a process right after its ledger, the first one in dir, was begun.
func newProcess(t *testing.T, base http.RoundTripper, quota outbound.Quota, dir string, life time.Duration) *process {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+audit.Suffix))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	p := &process{base: base, quota: quota, ledger: files[0]}
	timer := time.AfterFunc(life, func() {
		p.kept, err = os.ReadFile(p.ledger)
		p.dead.Store(true)
	})
	t.Cleanup(func() { timer.Stop() })
	return p
}

// bury leaves the ledger as it was when the process was killed.
func (p *process) bury(t *testing.T) {
	t.Helper()
	if p.dead.Load() {
		if err := os.WriteFile(p.ledger, p.kept, 0o600); err != nil {
			t.Error(err)
		}
	}
}

func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.dead.Load() {
		return nil, errKilled
	}
	return p.base.RoundTrip(r)
}

func (p *process) Take(ctx context.Context, c *outbound.Call, hold time.Duration) (outbound.Grant, error) {
	if p.dead.Load() {
		return nil, errKilled
	}
	g, err := p.quota.Take(ctx, c, hold)
	if err != nil {
		return nil, err
	}
	return &grant{g, p}, nil
}

func (p *process) Pause(ctx context.Context, c *outbound.Call, pause drawgate.Pause) error {
	if p.dead.Load() {
		return errKilled
	}
	return p.quota.Pause(ctx, c, pause)
}

// grant is what a process holds.
type grant struct {
	outbound.Grant
	p *process
}

func (g *grant) Settle(ctx context.Context, used ...drawgate.Cost) error {
	if g.p.dead.Load() {
		return errKilled
	}
	return g.Grant.Settle(ctx, used...)
}

func (g *grant) Cancel(ctx context.Context) error {
	if g.p.dead.Load() {
		return errKilled
	}
	return g.Grant.Cancel(ctx)
}

func (g *grant) Renew(ctx context.Context, hold time.Duration) error {
	if g.p.dead.Load() {
		return errKilled
	}
	return g.Grant.Renew(ctx, hold)
}

// call makes one call. Its own errors are part of the scenario.
func (s *scenario) call(ctx context.Context, rt http.RoundTripper, l load, leave bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	path, more := s.api.path, ""
	if l.stream {
		path, more = s.api.live, s.api.more
	}
	prompt := fmt.Sprintf("%s\nsimulate: output=%d delay=%v chunk=50ms", strings.Repeat("word ", l.words), l.output,
		l.delay)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider.test"+path,
		strings.NewReader(fmt.Sprintf(s.api.body, prompt, more)))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if leave {
		_, _ = io.ReadFull(resp.Body, make([]byte, 100))
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
}

// agree compares what the audit says with what the referee recorded.
func (s *scenario) agree(r *audit.Report, sim *simulator.Server) error {
	v := sim.Violations()
	right := slices.Max(s.factors) == 1
	if v.Total == 0 && right && r.Verdict != audit.Within {
		return fmt.Errorf("the referee counted no violation, and the limits are right: got %q: %s", r.Verdict,
			describe(r))
	}
	if right && v.Total > 0 {
		return fmt.Errorf("the limits are right, and the referee counted %d violations: %+v", v.Total, v.Calls)
	}
	for _, c := range v.Calls {
		for _, x := range c.Refusals {
			l, e := find(r, x.Limit, audit.Window(x.Window), c.Arrived)
			if l == nil || l.Verdict == audit.Within || e == nil {
				return fmt.Errorf("the referee refused a call by %s at %v (%+v), and the audit has no episode there: %s", x.Limit, c.Arrived, x, describe(r))
			}
			if x.Dimension == simulator.Requests && l.Verdict != audit.Over && len(c.Refusals) == 1 && s.reported(r) {
				return fmt.Errorf("%s was exceeded for certain, and the audit says %q: %s", x.Limit, l.Verdict,
					describe(r))
			}
		}
	}
	return nil
}

// told reports whether the ledgers tell for certain which limits were exceeded: each call had its
// answer, and each refusal named a limit. If it did not, those that are still open may have arrived
// after it.
func (s *scenario) reported(r *audit.Report) bool {
	return len(s.faults) == 0 && !s.leave && s.kill == 0 &&
		!slices.ContainsFunc(r.Refusals, func(f audit.Refusal) bool { return f.Unit == "" })
}

// find returns what the audit says of a limit, and of an instant.
func find(r *audit.Report, limit string, w audit.Window, at time.Time) (*audit.LimitReport, *audit.Episode) {
	for i := range r.Limits {
		l := &r.Limits[i]
		if l.Limit != limit || l.Window != w {
			continue
		}
		for k := range l.Over {
			if e := &l.Over[k]; !at.Before(e.From) && !at.After(e.Until) {
				return l, e
			}
		}
		return l, nil
	}
	return nil, nil
}

func describe(r *audit.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d calls, %d settled, %d refunded, %d unended, %d refused, missing %d damaged %d orphans %d late %d", r.Calls, r.Settled, r.Refunded, r.Unended, r.Refused, r.Missing, r.Damaged, r.Orphans, r.Late)
	for i := range r.Limits {
		fmt.Fprintf(&b, "\n%+v", r.Limits[i])
	}
	return b.String()
}

// TestAgreesWithTheReferee: for random limits and loads the audit never says that a limit was kept
// in a window in which the provider counted a violation; says that it was exceeded where ours was
// too high; and that all were kept where ours was right.
func TestAgreesWithTheReferee(t *testing.T) {
	needs.NoRace(t) // one caller
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScenario(rt)
		var wrong error
		synctest.Test(t, func(t *testing.T) {
			sim, dir := s.play(t)
			r, err := audit.Replay(t.Context(), []string{dir}, s.quotas(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			wrong = s.agree(r, sim)
		})
		if wrong != nil {
			rt.Fatal(wrong)
		}
	})
}
