package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// built is the folder of the program, which TestMain removes.
var built string

// build builds drawgate once, and returns its path.
var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "drawgate")
	return path, needs.Drawgate("..", path)
})

// binary returns the path of drawgate for a test that starts it. -short leaves such a test out, as
// it leaves out each that starts a program: see startWith.
func binary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the program drawgate: left out by -short")
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMain(m *testing.M) {
	var err error
	if built, err = os.MkdirTemp("", "drawgate"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// The ports that the configurations name.
const (
	proxyAddr   = "127.0.0.1:8080"
	siteAddr    = "127.0.0.1:8081"
	gateAddr    = "127.0.0.1:7878"
	gateRPCAddr = "127.0.0.1:7880"
)

// testbed is a proxy in front of a site, with Drawgate beside it.
type testbed struct {
	t      *testing.T
	dir    string
	swap   *strings.Replacer // of ports
	proxy  string            // address
	gate   string            // address
	rpc    string            // address
	db     string            // the file of the store
	daemon *process
	hurry  atomic.Bool // no connection of a flood rests
}

// newTestbed starts a site, and Drawgate with that configuration.
func newTestbed(t *testing.T, config string) *testbed {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = io.WriteString(w, "the site\n")
	}))
	t.Cleanup(site.Close)
	return newTestbedFor(t, config, site.Listener.Addr().String())
}

// newTestbedFor starts Drawgate with that configuration, for a site.
func newTestbedFor(t *testing.T, config, site string) *testbed {
	t.Helper()
	s := &testbed{
		t: t, dir: t.TempDir(), proxy: redistest.FreeAddr(t), gate: redistest.FreeAddr(t),
		rpc: redistest.FreeAddr(t),
	}
	s.swap = strings.NewReplacer(proxyAddr, s.proxy, siteAddr, site, gateAddr, s.gate, gateRPCAddr, s.rpc)
	s.db = filepath.Join(fastDir(t), "drawgate.db")
	s.write("drawgate.yaml", strings.Replace(config, "sqlite:drawgate.db", "sqlite://"+s.db, 1))
	s.startGate()
	return s
}

// fastDir returns a folder in memory if there is one, because these tests are about proxies and not
// about the disk.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "drawgate") //nolint:usetesting // in memory
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// write writes a configuration into the testbed's folder, with its ports.
func (s *testbed) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(s.ports(text)), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// ports replaces the addresses in a configuration with those of the testbed. Envoy writes hosts and
// ports separately.
func (s *testbed) ports(text string) string {
	text = s.swap.Replace(text)
	for from, to := range map[string]string{
		proxyAddr: s.proxy, siteAddr: s.swap.Replace(siteAddr),
		gateRPCAddr: s.rpc,
	} {
		_, old, _ := net.SplitHostPort(from)
		_, port, _ := net.SplitHostPort(to)
		text = strings.ReplaceAll(text, "port_value: "+old, "port_value: "+port)
	}
	return text
}

// longer raises the timeouts of a proxy for a busy machine. How a proxy answers without Drawgate is
// tested by stopping Drawgate.
var longer = strings.NewReplacer(
	"timeout 100ms", "timeout 30s", "timeout 1s", "timeout 30s", // nginx and Caddy
	"timeout connect 1s", "timeout connect 30s", "timeout = 1000", "timeout = 30000", // HAProxy
	"timeout: 1s", "timeout: 30s", // Envoy
)

// copied writes a configuration of this folder, with longer timeouts.
func (s *testbed) copied(path string) {
	s.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(filepath.Base(path), longer.Replace(string(text)))
}

func (s *testbed) startGate() {
	s.t.Helper()
	s.daemon = s.start(binary(s.t), "serve", "--config", "drawgate.yaml")
	s.await("http://"+s.gate+"/readyz", http.StatusOK)
}

// process is a program that runs until the test ends.
type process struct {
	cmd  *exec.Cmd
	log  *bytes.Buffer // what it printed; to be read when it has ended
	done chan struct{}
}

// start runs a program in the testbed's folder.
func (s *testbed) start(name string, args ...string) *process {
	s.t.Helper()
	env := append(os.Environ(), "HOME="+s.dir, "XDG_DATA_HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir)
	return s.startWith(env, name, args...)
}

// startWith runs a program with these variables.
func (s *testbed) startWith(env []string, name string, args ...string) *process {
	s.t.Helper()
	p := &process{cmd: exec.Command(needs.Program(s.t, name), args...), log: &bytes.Buffer{}, done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = s.dir, p.log, p.log, env
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { defer close(p.done); _ = p.cmd.Wait() }()
	s.t.Cleanup(func() {
		p.stop(syscall.SIGTERM)
		if s.t.Failed() {
			s.t.Logf("%s printed:\n%s", filepath.Base(name), p.log)
		}
	})
	return p
}

// stop ends the program, by force if necessary.
func (p *process) stop(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.done:
	case <-time.After(hang):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// reply is an answer without its body.
type reply struct {
	StatusCode int
	Status     string
	Header     http.Header
}

// get asks once, from a client address ("" is any).
func (s *testbed) get(url, from string) (*reply, error) {
	d := &net.Dialer{Timeout: hang}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	tr := &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	c := &http.Client{Transport: tr, Timeout: hang}
	res, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return &reply{res.StatusCode, res.Status, res.Header}, errors.Join(err, res.Body.Close())
}

// await asks until the answer has that status.
func (s *testbed) await(url string, status int) *reply {
	s.t.Helper()
	last := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		res, err := s.get(url, "")
		if err == nil && res.StatusCode == status {
			return res
		}
		if last = fmt.Sprint(err); err == nil {
			last = res.Status
		}
	}
	s.t.Fatalf("%s: %s, want %d", url, last, status)
	return nil
}

// asked is one of many requests.
type asked struct {
	from         string // address
	began, ended time.Time
	status       int // 0 if there was no answer
}

// crowd is the requests of many clients.
type crowd struct {
	mu  sync.Mutex
	all []asked // guarded by mu
}

// of returns the requests that fulfil a condition.
func (c *crowd) of(which func(asked) bool) (some []asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.all {
		if which(a) {
			some = append(some, a)
		}
	}
	return some
}

// await waits for so many requests that fulfil a condition.
func (c *crowd) await(n int, which func(asked) bool) {
	for end := time.Now().Add(patience); len(c.of(which)) < n && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
}

// flood sends requests until ctx ends, over that many connections, each from an address of its own
// or all from the first. Each connection rests for a while after each answer: see rates.
func (s *testbed) flood(ctx context.Context, connections int, apart bool, to *crowd) {
	s.t.Helper()
	var wg sync.WaitGroup
	for i := range connections {
		if !apart {
			i = 0
		}
		from := net.IPv4(127, 1, byte(i/250), byte(1+i%250))
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
		c := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}, Timeout: hang}
		wg.Go(func() {
			defer c.CloseIdleConnections()
			for {
				a := s.ask(ctx, c)
				a.from = from.String()
				if ctx.Err() != nil {
					return // it was given up
				}
				to.mu.Lock()
				to.all = append(to.all, a)
				to.mu.Unlock()
				if !s.hurry.Load() {
					time.Sleep(rest)
				}
			}
		})
	}
	wg.Wait()
}

// hang is how long a request may take. Every proxy has a shorter timeout; the rest is for a busy
// machine.
const hang = time.Minute

// patience is how long to wait for something that must happen.
const patience = 3 * time.Minute

// ask sends one request to the proxy.
func (s *testbed) ask(ctx context.Context, c *http.Client) (a asked) {
	a.began = time.Now()
	defer func() { a.ended = time.Now() }()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.proxy+"/", http.NoBody)
	if err != nil {
		s.t.Error(err)
		return a
	}
	res, err := c.Do(r)
	if err != nil {
		return a
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		a.status = res.StatusCode
	}
	return a
}

// admitted returns when takes were admitted under a policy, by key, as the store's history has it.
func (s *testbed) admitted(policy string) map[string][]time.Time {
	s.t.Helper()
	st, err := sqlitestore.Open(s.db, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	all := map[string][]time.Time{}
	err = st.Read(s.t.Context(), store.EventQuery{}, func(e store.Event) bool {
		if e.Key.Policy == policy && e.Op == "take" {
			for _, u := range e.Units {
				for range u.N {
					all[e.Key.Name] = append(all[e.Key.Name], e.At)
				}
			}
		}
		return true
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// within fails if more than most of the instants lie in any window of that length, half-open.
func within(t *testing.T, what string, at []time.Time, most int, window time.Duration) {
	t.Helper()
	for i := range at {
		if i+most < len(at) && at[i+most].Sub(at[i]) < window {
			t.Fatalf("%s: %d in %v from %v, more than %d", what, most+1, at[i+most].Sub(at[i]), at[i], most)
		}
	}
}

// full reports whether the limit was used up when a request was refused: at some instant during the
// request, so much had been admitted in the second before. So the speed of the machine does not
// matter.
func full(a asked, at []time.Time, most int) bool {
	const window = time.Second + time.Second/64 // an entry leaves the window up to a 128th of it late
	first, _ := slices.BinarySearchFunc(at, a.began.Add(-window), time.Time.Compare)
	for i := first; i+most <= len(at) && !at[i+most-1].After(a.ended); i++ {
		if at[i+most-1].Sub(at[i]) < window {
			return true
		}
	}
	return false
}

// refused returns how many requests were refused. It fails if one was refused too early, or none at
// all.
func (c *crowd) refused(t *testing.T, rightly func(asked) bool) int {
	t.Helper()
	all := c.of(func(a asked) bool { return a.status == http.StatusTooManyRequests })
	if len(all) == 0 {
		t.Error("nothing was refused")
	}
	for _, a := range all {
		if !rightly(a) {
			t.Errorf("%s was refused between %v and %v, and the limit was not used", a.from, a.began, a.ended)
			break
		}
	}
	return len(all)
}

// used returns how much of the site's limit was used in so many seconds from the first instant on.
// It is never more than 1, because each of these seconds is a window.
func used(at []time.Time, seconds int) float64 {
	if len(at) == 0 {
		return 0
	}
	end := at[0].Add(time.Duration(seconds) * time.Second)
	n := sort.Search(len(at), func(i int) bool { return !at[i].Before(end) })
	return float64(n) / float64(siteRate*seconds)
}
