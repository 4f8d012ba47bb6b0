//go:build long && unix

package main

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/spend"
)

// TestBillAtMonthsEdge: gateways on one store, each a process, over the end of a month, while each
// of them is killed once, and on SQLite, Redis and PostgreSQL the store is away three times (a
// gateway is killed in the middle of one), and answers of Redis get lost. The provider's bill, the
// ledgers and drawgate spend are the same, to the millionth, for each team, model and day; what
// differs are calls that drawgate spend --check lists, which were open when their process was
// killed, or which it could not deliver any more. The month is over in a zone of the test's own.
// What an outage left to be counted must be answered in time, so this depends on the machine's
// speed.
func TestBillAtMonthsEdge(t *testing.T) { //nolint:tparallel // the long runs need the machine for themselves
	t.Parallel()
	for name, on := range map[string]func(*spenders){
		"sqlite": (*spenders).onSQLite, "redis": (*spenders).onRedis, "dynamodb": (*spenders).onDynamoDB,
		"postgres": (*spenders).onPostgres,
	} {
		if name != "sqlite" && !needs.Long() {
			continue // TestSpendIsTheBill of package gateway has each store
		}
		t.Run(name, func(t *testing.T) {
			s := &spenders{
				T: t, gateways: needs.Rounds(2, 2, 8), teams: needs.Rounds(5, 5, 40),
				calls: int64(needs.Rounds(100, 200, 200_000)), callers: 16,
			}
			s.run(on, time.Duration(needs.Rounds(1, 1, 60))*time.Second)
		})
	}
}

// billed are the models of these calls, and what a million tokens of prompts and answers cost, in
// millionths.
var billed = map[string][2]int64{
	"gpt-4.1": {2_000_000, 8_000_000}, "gpt-4.1-mini": {400_000, 1_600_000}, "gpt-4.1-nano": {100_000, 400_000},
	"gpt-4o": {2_500_000, 10_000_000}, "gpt-4o-mini": {150_000, 600_000},
}

// biller is a provider that answers each call with a usage that its prompt determines, and bills
// whom the prompt names. It charges for calls whose callers leave, too.
type biller struct {
	zone *time.Location

	mu    sync.Mutex
	bill  map[spend.Meter]spend.Units // guarded by mu
	edge  map[spend.Meter]spend.Units // guarded by mu: of calls that came on the day after they began
	seen  map[string]bool             // guarded by mu: calls
	twice int                         // guarded by mu: calls that came again
}

// aWhile is how long one call in a hundred takes.
const aWhile = 500 * time.Millisecond

// ServeHTTP implements http.Handler.
func (b *biller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	h := fnv.New32a()
	_, _ = h.Write(body)
	sum := int64(h.Sum32())
	u := spend.Units{Requests: 1, PromptTokens: 1 + sum%30, AnswerTokens: 1 + sum/1000%100}
	b.charge(string(body), u)
	if sum%100 == 0 {
		sleep.For(r.Context(), aWhile)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, u.PromptTokens, u.AnswerTokens,
		u.PromptTokens+u.AnswerTokens)
}

// charge writes a call down.
func (b *biller) charge(body string, u spend.Units) {
	_, who, _ := strings.Cut(body, "for ")
	who, _, _ = strings.Cut(who, ";")
	parts := strings.Split(who, ",") // team, model, number, when it began
	began, _ := strconv.ParseInt(parts[3], 10, 64)
	m := spend.Meter{
		Day:  time.Unix(0, began).In(b.zone).Format(time.DateOnly),
		Team: "team" + parts[0], Key: "key" + parts[0], Upstream: "openai", Model: parts[1],
	}
	price := billed[m.Model]
	u.Micros = (u.PromptTokens*price[0] + u.AnswerTokens*price[1] + 999_999) / 1_000_000
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen[parts[2]] {
		b.twice++
	}
	b.seen[parts[2]] = true
	to := b.bill
	if time.Now().In(b.zone).Format(time.DateOnly) != m.Day {
		to = b.edge
	}
	to[m] = plus(to[m], u)
}

func plus(a, b spend.Units) spend.Units {
	return spend.Units{
		Requests: a.Requests + b.Requests, PromptTokens: a.PromptTokens + b.PromptTokens,
		AnswerTokens: a.AnswerTokens + b.AnswerTokens, Micros: a.Micros + b.Micros,
	}
}

// spenders are gateways, each a process, on one store and in front of a biller.
type spenders struct {
	*testing.T
	gateways, teams, callers int
	calls                    int64

	b         bench
	biller    *biller
	edge      time.Time // when a month begins in the biller's zone
	env       []string  // for the store
	store     string    // its URL
	stop      func()    // makes the store unavailable
	back      func()
	noLosses  func() // all answers of the store arrive from now on
	addresses []string
	running   []*daemon

	answered atomic.Int64
	broken   atomic.Int64 // calls that got no answer: their gateway was killed
	// calls that were refused because the store gave no answer before their time was over
	unanswered atomic.Int64
	most       atomic.Int64 // calls until all ends; 0 until all that was to happen has happened
}

// run makes calls over the end of a month, which is so far away, and compares.
func (s *spenders) run(on func(*spenders), until time.Duration) {
	on(s)
	env := []string{"UPSTREAM_KEY=sk-upstream-0123456789", "ZONEINFO=zones"}
	for i := range s.teams {
		env = append(env, fmt.Sprintf("KEY%d=%s", i, teamSecret(i)))
	}
	s.b = newBench(s.T, append(env, s.env...)...)
	if strings.HasPrefix(s.store, "dynamodb:") {
		if out, code := s.b.do("table", "create", "--store", s.store); code != 0 {
			s.Fatalf("the table was not made: %d, %s", code, out)
		}
	}
	s.biller = &biller{
		zone: s.zone(until), bill: map[spend.Meter]spend.Units{}, edge: map[spend.Meter]spend.Units{},
		seen: map[string]bool{},
	}
	provider := httptest.NewServer(s.biller)
	s.Cleanup(provider.Close)
	s.running = make([]*daemon, s.gateways)
	for i := range s.gateways {
		s.addresses = append(s.addresses, redistest.FreeAddr(s.T))
		s.b.write(fileOf(i), s.configuration(i, provider.URL))
		s.gateway(i)
	}
	began := time.Now()
	done := s.load()
	s.disturb()
	<-done
	s.delivered()
	for _, d := range s.running {
		d.signal(syscall.SIGTERM)
		<-d.done
	}
	s.Logf("%d gateways, %d teams, %d models: %d calls were answered in %v; %d got no answer since their gateway was "+
		"killed, %d were refused since the store gave none",
		s.gateways, s.teams, len(billed), s.answered.Load(), time.Since(began).Round(time.Second), s.broken.Load(),
		s.unanswered.Load())
	s.noLosses()
	s.judge()
}

// delivered waits until the store has heard what each gateway owes it.
func (s *spenders) delivered() {
	s.Helper()
	for _, d := range s.running {
		if d.killed {
			continue
		}
		eventually(s.T, "end of what the store is owed",
			func() bool { return d.metric("drawgate_fallback_owed_buckets") == 0 })
	}
}

// zone makes a zone in which a month begins after a while, for the gateways as well.
func (s *spenders) zone(after time.Duration) *time.Location {
	s.Helper()
	s.edge = time.Now().Add(after).Truncate(time.Second)
	utc := s.edge.UTC()
	offset := int(time.Date(utc.Year(), utc.Month()+1, 1, 0, 0, 0, 0, time.UTC).Sub(utc) / time.Second)
	// RFC 8536, version 1: no changes of the clock, one type of local time, and its name.
	file := append([]byte("TZif"), make([]byte, 16+3*4+4)...)
	file = binary.BigEndian.AppendUint32(file, 1)
	file = binary.BigEndian.AppendUint32(file, 5)
	file = binary.BigEndian.AppendUint32(file, uint32(offset))
	file = append(file, 0, 0)
	file = append(file, "EDGE\x00"...)
	if err := os.Mkdir(filepath.Join(s.b.dir, "zones"), 0o700); err != nil {
		s.Fatal(err)
	}
	s.b.write("zones/Edge", string(file))
	return time.FixedZone("EDGE", offset)
}

func teamSecret(team int) string { return fmt.Sprintf("vk-key-%d-0123456789", team) }

// configuration returns that of a gateway, whose calls go on while the store is away.
func (s *spenders) configuration(gateway int, provider string) string {
	var keys, prices, policies, models []string
	for i := range s.teams {
		keys = append(keys, fmt.Sprintf("    - {name: key%d, team: team%d, secret_env: KEY%d}\n", i, i, i))
	}
	for _, name := range slices.Sorted(maps.Keys(billed)) {
		price := func(micros int64) string { return fmt.Sprintf("%d.%06d", micros/1_000_000, micros%1_000_000) }
		policy := strings.ReplaceAll(name, ".", "-")
		policies = append(policies, fmt.Sprintf("  %s: {limits: [{name: rpm, rolling: 1m, amount: 1000000}], fallback: open}\n",
			policy))
		models = append(models, fmt.Sprintf("{model: %s, policy: %s}", name, policy))
		prices = append(prices, fmt.Sprintf(`%s: {input: "%s", output: "%s"}`, name, price(billed[name][0]),
			price(billed[name][1])))
	}
	return fmt.Sprintf(`store: %s
policies:
%sgateway:
  ledger: {dir: %s}
  spend: {zone: Edge}
  upstreams:
    openai: {url: %s, api_key_env: UPSTREAM_KEY, owner: project, hold: 90s, models: [%s]}
  prices: {models: {%s}}
  keys:
%s`, s.store, strings.Join(policies, ""), ledgerOf(gateway), provider, strings.Join(models, ", "),
		strings.Join(prices, ", "), strings.Join(keys, ""))
}

// gateway starts a gateway, at its address.
func (s *spenders) gateway(i int) {
	s.Helper()
	d := s.b.background("gateway", "--config", fileOf(i), "--listen", s.addresses[i], "--admin", "127.0.0.1:0")
	d.admin = d.log.await(s.T, `administration at (http://[^"]+)`)
	d.log.await(s.T, `gateway (listening) on http://`)
	s.running[i] = d
}

// load makes calls until there were enough, and a month has ended. It closes done then.
func (s *spenders) load() (done chan struct{}) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: s.callers}}
	var group sync.WaitGroup
	for c := range s.callers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 5))
			for i := 0; s.answered.Load() < s.most.Load() || s.most.Load() == 0 || time.Until(s.edge) > -aWhile; i++ {
				s.call(client, rng, fmt.Sprint(c, "-", i))
			}
		})
	}
	done = make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
		client.CloseIdleConnections()
	}()
	return done
}

// call makes a call by any key through any gateway. One that gets no answer is not made again.
func (s *spenders) call(client *http.Client, rng *rand.Rand, name string) {
	team, model := rng.IntN(s.teams), slices.Sorted(maps.Keys(billed))[rng.IntN(len(billed))]
	body := fmt.Sprintf(`{"model":%q,"max_tokens":200,"messages":[{"role":"user","content":"for %d,%s,%s,%d;"}]}`,
		model, team, model, name, time.Now().UnixNano())
	url := "http://" + s.addresses[rng.IntN(s.gateways)] + "/openai/v1/chat/completions"
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		s.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+teamSecret(team))
	r.GetBody = nil // then it is sent once
	resp, err := client.Do(r)
	if err == nil {
		var text []byte
		text, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil && resp.StatusCode != http.StatusOK {
			if s.unanswered.Add(1); resp.StatusCode != http.StatusServiceUnavailable {
				s.Errorf("%d %s", resp.StatusCode, text)
			}
			return
		}
	}
	if err != nil {
		if !errors.Is(err, syscall.ECONNREFUSED) { // else nothing was sent
			s.broken.Add(1)
		}
		sleep.For(s.Context(), 10*time.Millisecond)
		return
	}
	s.answered.Add(1)
}

// disturb kills each gateway, and makes the store unavailable three times, spread over the calls.
// The last gateway is killed while the store is unavailable.
func (s *spenders) disturb() {
	s.Helper()
	kill := func(i int) {
		s.running[i].kill()
		s.gateway(i)
	}
	var steps []func()
	for i := range s.gateways - 1 {
		steps = append(steps, func() { kill(i) })
	}
	outage := func(least time.Duration, during func()) func() {
		return func() {
			s.stop()
			began, enough := time.Now(), s.answered.Load()+int64(4*s.callers)
			eventually(s.T, "call without the store", func() bool {
				return s.answered.Load() >= enough && time.Since(began) >= least
			})
			during()
			s.back()
		}
	}
	long := time.Duration(needs.Rounds(0, 0, 70)) * time.Second
	steps = append(steps, outage(long, func() { s.running[s.gateways-1].kill() }), func() { s.gateway(s.gateways - 1) })
	steps = slices.Insert(steps, 1, outage(0, func() {}))
	steps = append(steps, outage(0, func() {}))
	for k, step := range steps {
		at := s.calls * int64(k+1) / int64(len(steps)+2)
		for s.answered.Load() < at {
			sleep.For(s.Context(), 5*time.Millisecond)
		}
		step()
	}
	s.delivered()
	// More calls, so that the ledgers show that the store is back.
	s.most.Store(max(s.calls, s.answered.Load()+int64(8*s.callers)))
}

// onSQLite keeps what is counted in a file, which somebody else locks.
func (s *spenders) onSQLite() {
	path := filepath.Join(s.TempDir(), "state.db")
	s.store = "sqlite://" + path
	var lock *sql.Conn
	s.stop = func() {
		db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(60000)")
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { _ = db.Close() })
		if lock, err = db.Conn(s.Context()); err == nil {
			_, err = lock.ExecContext(s.Context(), "BEGIN IMMEDIATE")
		}
		if err != nil {
			s.Fatal(err)
		}
	}
	s.back = func() {
		if _, err := lock.ExecContext(s.Context(), "ROLLBACK"); err != nil {
			s.Fatal(err)
		}
		_ = lock.Close()
	}
	s.env, s.noLosses = []string{"DRAWGATE_STORE_TIMEOUT=2s"}, func() {}
}

// lost is one answer in how many of a store is lost.
const lost = 2000

// onRedis counts at a server that writes everything to its disk, and is killed in each outage.
func (s *spenders) onRedis() {
	server := redistest.Start(s.T, "--appendonly", "yes", "--appendfsync", "always")
	proxy := redistest.NewProxy(s.T, server.Addr)
	proxy.OneIn.Store(lost)
	s.noLosses = func() { proxy.OneIn.Store(0) }
	s.store, s.env = "redis://"+proxy.Addr, []string{"DRAWGATE_STORE_TIMEOUT=2s"}
	s.stop = func() {
		server.Kill9()
		proxy.Cut()
	}
	s.back = server.Restart
}

// onPostgres counts at a server that is killed in each outage.
func (s *spenders) onPostgres() {
	server := pgtest.Start(s.T)
	proxy := redistest.NewProxy(s.T, server.Addr)
	proxy.OneIn.Store(lost)
	s.noLosses = func() { proxy.OneIn.Store(0) }
	s.store = strings.Replace(server.URL(), server.Addr, proxy.Addr, 1)
	s.env = []string{"DRAWGATE_STORE_TIMEOUT=2s"}
	s.stop = func() {
		server.Kill9()
		proxy.Cut()
	}
	s.back = server.Restart
}

// onDynamoDB counts at a stand-in for DynamoDB.
func (s *spenders) onDynamoDB() {
	server := strings.TrimPrefix(awstest.Dynalite(s.T).URL, "http://")
	proxy := redistest.NewProxy(s.T, server)
	proxy.OneIn.Store(lost)
	s.noLosses = func() { proxy.OneIn.Store(0) }
	s.store = "dynamodb://shared?region=local&endpoint=http://" + proxy.Addr
	s.env = []string{"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "DRAWGATE_STORE_TIMEOUT=10s"}
	s.callers = 4                                   // those who write the same items wait for each other
	s.stop = func() { proxy.Switch("127.0.0.1:1") } // nobody is there
	s.back = func() { proxy.Switch(server) }
}
