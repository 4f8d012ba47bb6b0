package helm_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
)

// instance is a pod that runs as a process of this machine.
type instance struct {
	*watched

	pod   *pod
	cmd   *exec.Cmd
	log   *output
	ports map[int]string
	done  chan struct{}
}

// run starts the program of a pod as the kubelet would, but on loopback addresses, and without a
// container. TestPodUnderRunc has the rest.
func (p *pod) run(t *testing.T) *instance {
	t.Helper()
	i := &instance{pod: p, log: &output{}, ports: map[int]string{}, done: make(chan struct{})}
	for _, port := range p.container().Ports {
		i.ports[int(port.ContainerPort)] = redistest.FreeAddr(t)
	}
	dir := t.TempDir()
	var mounts []string
	for name, at := range p.volumes(t, dir) {
		for _, m := range p.container().VolumeMounts {
			if m.Name == name {
				mounts = append(mounts, m.MountPath, at)
			}
		}
	}
	here := strings.NewReplacer(mounts...)
	for _, v := range p.spec.Volumes {
		if files := p.files(t, &v); files != nil {
			moved := map[string]string{}
			for name, text := range files {
				moved[name] = here.Replace(text)
			}
			publish(t, filepath.Join(dir, v.Name), moved)
		}
	}
	i.cmd = exec.Command(program(t), onLoopback(p.container().Args, i.ports)...)
	for _, e := range onLoopback(p.env(t), i.ports) {
		i.cmd.Env = append(i.cmd.Env, here.Replace(e))
	}
	i.cmd.Dir, i.cmd.Stdout, i.cmd.Stderr, i.cmd.SysProcAttr = "/", i.log, i.log, redistest.DieWithParent()
	if err := i.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(i.done); _ = i.cmd.Wait() }()
	t.Cleanup(func() {
		_ = i.cmd.Process.Kill()
		<-i.done
		if t.Failed() {
			t.Logf("a pod printed:\n%s", i.log)
		}
	})
	i.watched = p.watch(t, loopback(i.ports))
	return i
}

// end ends a pod as the kubelet does: it waits for preStop, sends SIGTERM, and may send SIGKILL.
// Meanwhile, after some time, endpoints takes the pod out of its Services.
func (i *instance) end(t *testing.T, endpoints func()) {
	t.Helper()
	i.stop() // it is not probed any more for what happens next
	began := time.Now()
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		time.Sleep(propagation)
		endpoints()
	}()
	time.Sleep(i.pod.preStop())
	<-removed
	if err := i.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	select {
	case <-i.done:
	case <-time.After(i.pod.patience() - i.pod.preStop()):
		t.Errorf("it had not ended %v after it was told to, and would be killed", time.Since(began))
		_ = i.cmd.Process.Kill()
		<-i.done
	}
	if state := i.cmd.ProcessState; state.ExitCode() != 0 {
		t.Errorf("a pod ended with %v", state)
	}
	if n := i.sick.Load(); n > 0 {
		t.Errorf("probes failed %d times", n)
	}
	t.Logf("a pod with %q ended after %v", i.pod.container().Args[0], time.Since(began).Round(10*time.Millisecond))
}

// propagation is how long the cluster needs to tell everybody that a pod ends.
const propagation = time.Second

// balancer is HAProxy in the place of a Service: what is asked by connection (tcp), as kube-proxy
// does, or by request (http), as an ingress does. It tries nothing twice.
type balancer struct {
	t      *testing.T
	socket string
	addrs  map[string]string // of frontends
	slots  map[string][]string
}

// newBalancer starts HAProxy with so many places for pods in each backend.
func newBalancer(t *testing.T, slots int, backends ...string) *balancer {
	t.Helper()
	dir, err := os.MkdirTemp("", "haproxy") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &balancer{t: t, socket: filepath.Join(dir, "sock"), addrs: map[string]string{}, slots: map[string][]string{}}
	var conf strings.Builder
	fmt.Fprintf(&conf, `global
	stats socket %s level admin
defaults
	timeout connect 10s
	timeout client 1h
	timeout server 1h
	retries 0
`, b.socket)
	for _, name := range backends {
		for _, mode := range []string{"tcp", "http"} {
			full := name + "-" + mode
			b.addrs[full] = redistest.FreeAddr(t)
			fmt.Fprintf(&conf, "frontend %[1]s\n\tmode %[2]s\n\tbind %[3]s\n\tdefault_backend %[1]s\nbackend %[1]s\n\tmode %[2]s\n\tbalance roundrobin\n",
				full, mode, b.addrs[full])
			if mode == "http" {
				fmt.Fprint(&conf, "\thttp-reuse always\n")
			}
			for i := range slots {
				fmt.Fprintf(&conf, "\tserver s%d 127.0.0.1:1 disabled\n", i)
				b.slots[full] = append(b.slots[full], "")
			}
		}
	}
	path := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(path, []byte(conf.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &output{}
	cmd := exec.Command(needs.Program(t, "haproxy"), "-f", path)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, redistest.DieWithParent()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("HAProxy printed:\n%s", log)
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(b.socket); err == nil {
			return b
		}
		if time.Now().After(end) {
			t.Fatalf("HAProxy does not start: %s", log)
		}
	}
}

// tell sends a command to HAProxy.
func (b *balancer) tell(command string) {
	conn, err := net.Dial("unix", b.socket)
	if err != nil {
		b.t.Error(err)
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, command+"\n")
	answer, err := io.ReadAll(conn)
	text := strings.TrimSpace(string(answer))
	if err != nil || text != "" && !strings.Contains(text, "changed") && !strings.Contains(text, "no need to change") {
		b.t.Errorf("%s: %s %v", command, text, err)
	}
}

// add puts a pod that is ready into the backends of a name. The returned func takes it out.
func (b *balancer) add(name, addr string) (remove func()) {
	_, port, _ := net.SplitHostPort(addr)
	var taken []string
	for _, mode := range []string{"tcp", "http"} {
		full := name + "-" + mode
		for i, in := range b.slots[full] {
			if in != "" {
				continue
			}
			b.slots[full][i] = addr
			server := fmt.Sprintf("%s/s%d", full, i)
			b.tell(fmt.Sprintf("set server %s addr 127.0.0.1 port %s", server, port))
			b.tell(fmt.Sprintf("set server %s state ready", server))
			taken = append(taken, server)
			break
		}
	}
	return func() {
		for _, server := range taken { // connections that are open stay, as with kube-proxy
			b.tell(fmt.Sprintf("set server %s state drain", server))
		}
	}
}

// load is what callers saw.
type load struct {
	asked, lost, cut, streams atomic.Int64

	mu  sync.Mutex
	why map[string]int // guarded by mu
}

func (l *load) failed(counter *atomic.Int64, format string, args ...any) {
	counter.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == nil {
		l.why = map[string]int{}
	}
	l.why[fmt.Sprintf(format, args...)]++
}

// takes asks one take after the other, until ctx ends, on a connection that it uses for as long as
// answers do not close it. It does not look whether the other side has closed it meanwhile, so a
// server that does loses a request.
func (l *load) takes(ctx context.Context, addr string) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for ctx.Err() == nil {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			l.failed(&l.lost, "%v", unnumbered(err))
			time.Sleep(pace)
			continue
		}
		in := bufio.NewReader(conn)
		for last := false; !last && ctx.Err() == nil; <-tick.C {
			last = l.take(conn, in)
		}
		_ = conn.Close()
	}
}

// take asks once, and reports whether it was the last time on a connection.
func (l *load) take(conn net.Conn, in *bufio.Reader) (last bool) {
	const body = `{"key":"me"}`
	l.asked.Add(1)
	_, err := fmt.Fprintf(conn, "POST /v1/take HTTP/1.1\r\nHost: drawgate\r\nAuthorization: Bearer take-0123456789abcdef\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
	if err != nil {
		l.failed(&l.lost, "%v", unnumbered(err))
		return true
	}
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		l.failed(&l.lost, "%v", unnumbered(err))
		return true
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(text), `"allowed":true`) {
		l.failed(&l.lost, "%s %.80s %v", res.Status, text, err)
	}
	return res.Close || err != nil
}

// calls streams one answer after the other, until ctx ends. An answer that has begun is read to its
// end.
func (l *load) calls(ctx context.Context, addr string, chunks int) {
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	for ctx.Err() == nil {
		l.call(c, addr, chunks, func() {})
	}
}

// call streams one answer, in so many pieces, one every 100 ms.
// begun is called when it has begun.
func (l *load) call(c *http.Client, addr string, chunks int, begun func()) {
	body := fmt.Sprintf(`{"model":"gpt-4.1","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"simulate: output=%d size=1 chunk=100ms"}]}`, chunks, chunks)
	r, err := http.NewRequest(http.MethodPost, "http://"+addr+"/openai/v1/chat/completions", io.NopCloser(strings.NewReader(body))) //nolint:noctx // as above
	if err != nil {
		l.failed(&l.lost, "%v", err)
		return
	}
	r.Header.Set("Authorization", "Bearer vk-alice-0123456789")
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(body))
	l.asked.Add(1)
	res, err := c.Do(r)
	if err != nil {
		l.failed(&l.lost, "%v", unnumbered(err))
		time.Sleep(pace)
		return
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		l.failed(&l.lost, "%s %.80s", res.Status, text)
		time.Sleep(pace)
		return
	}
	l.streams.Add(1)
	begun()
	var last []byte
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			last = append(last[:0], line...)
		}
	}
	if err := lines.Err(); err != nil || string(last) != "data: [DONE]" {
		l.failed(&l.cut, "%v, the last line is %.80s", err, last)
	}
}

// unnumbered leaves ports out of an error.
func unnumbered(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	return err
}

// pace is the time between the requests of one caller.
const pace = 20 * time.Millisecond

// rollingFile is of servers and gateways alike.
const rollingFile = `
store_timeout: 30s
policies:
  api: {limits: [{name: rps, rolling: 1s, amount: 1_000_000, margin: 500ms}]}
`

// Three servers and a gateway are restarted one by one, as a Deployment does it with maxSurge 1 and
// maxUnavailable 0, behind HAProxy and under load, with the probes and times of the rendered chart:
// no request is lost, no stream is cut, and every pod ends in time.
func TestRollingRestart(t *testing.T) {
	redis := redistest.Start(t)
	upstream := redistest.FreeAddr(t)
	simulator := exec.Command(program(t), "simulate", "--listen", upstream)
	simulator.SysProcAttr = redistest.DieWithParent()
	if err := simulator.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = simulator.Process.Kill(); _ = simulator.Wait() })

	values, _ := combination(0b10011)
	put("server.config", rollingFile)(values)
	put("gateway.config", rollingFile+fmt.Sprintf(`
gateway:
  upstreams: {openai: {url: "http://%s", api_key_file: /run/secrets/drawgate/OPENAI_API_KEY, models: [{model: "*", policy: api}]}}
  keys: [{name: alice, secret_file: /run/secrets/drawgate/ALICE_KEY}]
`, upstream))(values)
	o, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	others := map[string]map[string]string{"Secret/shared": {}}
	for k, v := range outside["Secret/shared"] {
		others["Secret/shared"][k] = v
	}
	others["Secret/shared"]["DRAWGATE_STORE"] = redis.URL()

	const servers = 3
	b := newBalancer(t, 2*servers+1, "server", "gateway")
	type running struct {
		*instance

		remove func()
		name   string
		port   int
	}
	begin := func(name, deployment string, port int) running {
		t.Helper()
		i := o.podOf(t, deployment, others).run(t)
		i.await(t, i.log)
		return running{i, b.add(name, i.ports[port]), name, port}
	}
	var pods []running
	for range servers {
		pods = append(pods, begin("server", "release-drawgate", 7878))
	}
	pods = append(pods, begin("gateway", "release-drawgate-gateway", 7881))
	c := pods[0].pod.container()
	t.Logf("liveness %s, readiness %s, preStop %v, killed after %v, gateway %v", described(c.LivenessProbe), described(c.ReadinessProbe),
		pods[0].pod.preStop(), pods[0].pod.patience(), pods[servers].pod.patience())

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var l load
	var wg sync.WaitGroup
	for _, mode := range []string{"tcp", "http"} {
		for range 12 {
			wg.Go(func() { l.takes(ctx, b.addrs["server-"+mode]) })
		}
		for range 3 {
			wg.Go(func() { l.calls(ctx, b.addrs["gateway-"+mode], 20) })
		}
	}
	for k, old := range pods {
		name := "release-drawgate"
		if old.name == "gateway" {
			name = "release-drawgate-gateway"
			var begun sync.WaitGroup
			for _, mode := range []string{"tcp", "http"} { // longer than preStop, shorter than drain
				begun.Add(1)
				wg.Go(func() {
					once := sync.OnceFunc(begun.Done)
					defer once() // also if it fails
					l.call(&http.Client{Transport: &http.Transport{}}, b.addrs["gateway-"+mode], 200, once)
				})
			}
			begun.Wait()
		}
		pods[k] = begin(old.name, name, old.port)
		old.end(t, old.remove)
	}
	stop()
	wg.Wait()
	t.Logf("%d requests, of which %d streams; lost %d, cut %d", l.asked.Load(), l.streams.Load(), l.lost.Load(), l.cut.Load())
	if l.lost.Load()+l.cut.Load() > 0 || l.streams.Load() == 0 {
		t.Errorf("requests failed: %v", l.why)
	}
}
