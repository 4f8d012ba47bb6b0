package helm_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
)

// image makes the root of an image with the program and a folder for state. The image of a release
// has tests of its own.
func image(t *testing.T) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "rootfs")
	for _, dir := range []string{"usr/bin", "var/lib/drawgate", "proc", "dev", "sys"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil { //nolint:gosec // as in an image
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(program(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin/drawgate"), text, 0o755); err != nil { //nolint:gosec // it is executed by anybody
		t.Fatal(err)
	}
	return root
}

// m is JSON.
type m map[string]any

// specification is how containerd would run the pod's container, as far as it matters here: the
// network is that of this machine.
func (p *pod) specification(t *testing.T, root, volumes string, uid, gid int, ports map[int]string) m {
	t.Helper()
	c := p.container()
	mounts := []m{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
		{"destination": "/sys", "type": "bind", "source": "/sys", "options": []string{"rbind", "nosuid", "ro"}},
	}
	at := p.volumes(t, volumes)
	for _, v := range c.VolumeMounts {
		mode := "rw"
		if v.ReadOnly {
			mode = "ro"
		}
		mounts = append(mounts, m{
			"destination": v.MountPath, "type": "bind", "source": at[v.Name], "options": []string{"rbind", mode},
		})
	}
	none := []string{}
	if len(c.SecurityContext.Capabilities.Drop) != 1 {
		t.Fatal("the container keeps capabilities")
	}
	return m{
		"ociVersion": "1.0.2",
		"process": m{
			"user": m{"uid": uid, "gid": gid}, "cwd": "/",
			"args":            append([]string{"/usr/bin/drawgate"}, onLoopback(c.Args, ports)...),
			"env":             append(onLoopback(p.env(t), ports), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
			"noNewPrivileges": !*c.SecurityContext.AllowPrivilegeEscalation,
			"capabilities":    m{"bounding": none, "effective": none, "permitted": none},
		},
		"root":     m{"path": root, "readonly": *c.SecurityContext.ReadOnlyRootFilesystem},
		"hostname": "drawgate-0",
		"mounts":   mounts,
		"linux":    m{"namespaces": []m{{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
	}
}

// The default pods run under runc as the image's user and as any other, with a read-only root and
// the volumes that the kubelet makes: they become ready by their own probes, notice a changed
// ConfigMap through its links, and end when they are told to.
func TestPodUnderRunc(t *testing.T) {
	runc := needs.Program(t, "runc")
	if os.Geteuid() != 0 {
		t.Skip("needs root") // tools/test.sh would say so
	}
	redis := redistest.Start(t)
	values, _ := combination(0b10011)
	file := "policies:\n  api: {limits: [{name: rps, rolling: 1s, amount: 300, margin: 500ms}]}\n"
	put("server.config", file)(values)
	put("gateway.config", file+`gateway:
  ledger: {dir: /var/lib/drawgate/ledger}
  upstreams: {openai: {url: "http://127.0.0.1:1", api_key_file: /run/secrets/drawgate/OPENAI_API_KEY, models: [{model: "*", policy: api}]}}
  keys: [{name: alice, secret_file: /run/secrets/drawgate/ALICE_KEY}]
`)(values)
	o, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	others := map[string]map[string]string{"Secret/shared": {}}
	for k, v := range outside["Secret/shared"] {
		others["Secret/shared"][k] = v
	}
	others["Secret/shared"]["DRAWGATE_STORE"] = redis.URL()
	root := image(t)
	for _, name := range []string{"release-drawgate", "release-drawgate-gateway"} {
		for _, user := range [][2]int{{65532, 65532}, {1000770000, 0}} {
			t.Run(fmt.Sprintf("%s as %d:%d", name, user[0], user[1]), func(t *testing.T) {
				p := o.podOf(t, name, others)
				ports := map[int]string{}
				for _, port := range p.container().Ports {
					ports[int(port.ContainerPort)] = redistest.FreeAddr(t)
				}
				volumes := t.TempDir()
				readable(t, volumes)
				c := contain(t, runc, p.specification(t, root, volumes, user[0], user[1], ports))
				w := p.watch(t, loopback(ports))
				w.await(t, c.log)
				amount := func() string { return policies(t, ports[7879]) }
				if got := amount(); !strings.Contains(got, `"amount":300`) {
					t.Errorf("the policies are %s", got)
				}
				was := p.object(t, "ConfigMap/"+name)["drawgate.yaml"]
				publish(t, filepath.Join(volumes, "config"), map[string]string{
					"drawgate.yaml": strings.Replace(was, "amount: 300", "amount: 301", 1),
				})
				await(t, "the changed ConfigMap is not noticed", func() bool {
					return strings.Contains(amount(), `"amount":301`)
				})
				w.stop()
				if n := w.sick.Load(); n > 0 {
					t.Errorf("probes failed %d times", n)
				}
				c.end(t, p)
				if s := c.log.String(); strings.Contains(s, "read-only") || strings.Contains(s, "permission denied") {
					t.Error("it wanted to write, or to read what it may not")
				}
				t.Logf("it printed:\n%s", c.log)
			})
		}
	}
}

// readable lets any user pass through a folder of this test.
func readable(t *testing.T, dir string) {
	t.Helper()
	for ; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // what is in it is no secret
			t.Fatal(err)
		}
	}
}

// policies returns what an administrator sees.
func policies(t *testing.T, addr string) string {
	t.Helper()
	return string(asAdmin(t, http.MethodGet, "http://"+addr+"/v1/policies"))
}

// asAdmin sends a request as an administrator, and returns the answer.
func asAdmin(t *testing.T, method, url string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer admin-0123456789abcdef")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %s %v", method, url, res.Status, text, err)
	}
	return text
}

// container runs under runc.
type container struct {
	cmd  *exec.Cmd
	log  *output
	done chan struct{}
	kill func(sig string) error
}

// contain starts a container.
func contain(t *testing.T, runc string, spec m) *container {
	t.Helper()
	bundle := t.TempDir()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("drawgate-%d-%d", os.Getpid(), time.Now().UnixNano())
	state := filepath.Join(t.TempDir(), "runc")
	c := &container{log: &output{}, done: make(chan struct{})}
	c.kill = func(sig string) error {
		return exec.Command(runc, "--root", state, "kill", id, sig).Run()
	}
	c.cmd = exec.Command(runc, "--root", state, "run", "--bundle", bundle, id)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(c.done); _ = c.cmd.Wait() }()
	t.Cleanup(func() {
		_ = c.kill("KILL")
		select {
		case <-c.done:
		case <-time.After(10 * time.Second):
			_ = c.cmd.Process.Kill()
		}
		_ = exec.Command(runc, "--root", state, "delete", "--force", id).Run()
		if t.Failed() {
			t.Logf("the container printed:\n%s", c.log)
		}
	})
	return c
}

// end ends a container as the kubelet does, without its pause.
func (c *container) end(t *testing.T, p *pod) {
	t.Helper()
	if err := c.kill("TERM"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.done:
	case <-time.After(p.patience() - p.preStop()):
		t.Fatal("it does not end in time")
	}
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}
