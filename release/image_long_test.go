//go:build long && linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/drawgate/drawgate/internal/needs"
)

// Another program reads the layout, and finds that everything fits together.
func TestImageIsValid(t *testing.T) {
	r := releaseMade(t)
	index, err := layout.ImageIndexFromPath(filepath.Join(r.out, "image"))
	if err == nil {
		err = validate.Index(index)
	}
	if err != nil {
		t.Error(err)
	}
}

// network is a network between this machine and a container, as docker makes one.
type network struct{ namespace, address string }

func newNetwork(t *testing.T) network {
	t.Helper()
	n := network{fmt.Sprintf("dgr%d", os.Getpid()), "10.213.77.2"}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", n.namespace).Run() })
	for _, args := range [][]string{
		{"netns", "add", n.namespace},
		{"link", "add", n.namespace, "type", "veth", "peer", "name", "eth0", "netns", n.namespace},
		{"address", "add", "10.213.77.1/30", "dev", n.namespace},
		{"link", "set", n.namespace, "up"},
		{"-n", n.namespace, "address", "add", n.address + "/30", "dev", "eth0"},
		{"-n", n.namespace, "link", "set", "eth0", "up"},
		{"-n", n.namespace, "link", "set", "lo", "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return n
}

// container is what "docker run" makes of the image: its root is read-only, and one folder is a
// volume.
type container struct {
	t       *testing.T
	bundle  string
	network network
}

// newContainer unpacks the image as it is loaded, with user as "docker run --user" and env as
// "--env".
func newContainer(t *testing.T, r *release, n network, user int, env ...string) *container {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test needs root")
	}
	umoci := needs.Program(t, "umoci")
	c := &container{t, filepath.Join(t.TempDir(), "bundle"), n}
	image := t.TempDir()
	for _, args := range [][]string{
		{"tar", "-xf", filepath.Join(r.out, r.name("image_linux_"+here.arch+".tar")), "-C", image},
		{umoci, "unpack", "--image", image + ":" + r.version, c.bundle},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	c.change(user, env)
	return c
}

// change changes what umoci made of the image, as docker does by default.
func (c *container) change(user int, env []string) {
	c.t.Helper()
	path := filepath.Join(c.bundle, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(text, &s); err != nil {
		c.t.Fatal(err)
	}
	process := s["process"].(map[string]any)
	process["terminal"] = false
	for _, e := range env {
		process["env"] = append(process["env"].([]any), e)
	}
	if user >= 0 {
		process["user"] = map[string]any{"uid": user, "gid": user}
	}
	process["noNewPrivileges"] = true
	process["capabilities"] = map[string]any{}
	s["root"].(map[string]any)["readonly"] = true
	// A new volume begins as the folder in the image is.
	volume := c.t.TempDir()
	if err := os.Chmod(volume, 0o777|os.ModeSticky); err != nil {
		c.t.Fatal(err)
	}
	// A volume that umoci made of the image is in memory.
	mounts := slices.DeleteFunc(s["mounts"].([]any), func(m any) bool {
		return m.(map[string]any)["destination"] == "/var/lib/drawgate"
	})
	s["mounts"] = append(mounts, map[string]any{
		"destination": "/var/lib/drawgate", "type": "bind", "source": volume, "options": []string{"bind", "rw"},
	})
	linux := s["linux"].(map[string]any)
	for _, n := range linux["namespaces"].([]any) {
		if n.(map[string]any)["type"] == "network" {
			n.(map[string]any)["path"] = "/var/run/netns/" + c.network.namespace
		}
	}
	delete(linux, "resources")
	text, err = json.Marshal(s)
	if err := errors.Join(err, os.WriteFile(path, text, 0o600)); err != nil {
		c.t.Fatal(err)
	}
}

// run runs the container until it ends, and returns what it printed.
func (c *container) run(args ...string) (string, error) {
	if len(args) > 0 {
		c.args(args)
	}
	out, err := c.command().CombinedOutput()
	return string(out), err
}

func (c *container) args(args []string) {
	c.t.Helper()
	path := filepath.Join(c.bundle, "config.json")
	text, err := os.ReadFile(path)
	var s map[string]any
	if err := errors.Join(err, json.Unmarshal(text, &s)); err != nil {
		c.t.Fatal(err)
	}
	s["process"].(map[string]any)["args"] = append([]string{"/usr/bin/drawgate"}, args...)
	text, err = json.Marshal(s)
	if err := errors.Join(err, os.WriteFile(path, text, 0o600)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *container) name() string {
	return c.network.namespace + regexp.MustCompile(`\W`).ReplaceAllString(c.t.Name(), "_")
}

func (c *container) command() *exec.Cmd {
	c.t.Helper()
	runc := needs.Program(c.t, "runc")
	return exec.Command(runc, "run", "--bundle", c.bundle, c.name())
}

// start starts the container, and stops it after the test as docker does: its end must be clean.
func (c *container) start() {
	c.t.Helper()
	cmd := c.command()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if text, err := exec.Command("runc", "kill", c.name(), "TERM").CombinedOutput(); err != nil {
			c.t.Errorf("runc kill: %v\n%s", err, text)
			_ = cmd.Process.Kill()
		}
		if err := cmd.Wait(); err != nil {
			c.t.Errorf("the container ended with %v\n%s", err, out.String())
		}
		_ = exec.Command("runc", "delete", "--force", c.name()).Run()
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get("http://" + c.network.address + ":7878/healthz")
		if err == nil {
			_ = answer.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%v\n%s", err, out.String())
		}
	}
}

// ask asks the server in the container from outside.
func (c *container) ask(token string) string {
	c.t.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://"+c.network.address+":7878/v1/take",
		strings.NewReader(`{"policy": "sample", "key": "me"}`))
	if err != nil {
		c.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// The container answers whoever is outside and has the token, as any user, and does not start
// without one.
func TestContainer(t *testing.T) {
	r := releaseMade(t)
	needs.Program(t, "runc")
	// There is no docker here: the tests do what its arguments on the page mean.
	page := lines(t, "## A container")
	page = page[:slices.IndexFunc(page, func(l [2]string) bool { return strings.HasPrefix(l[0], "curl") })+1]
	const arguments = "docker run --pull never --detach --name drawgate --read-only --env DRAWGATE_TAKE_TOKEN " +
		"--publish 127.0.0.1:7878:7878 --volume drawgate:/var/lib/drawgate drawgate:" + nextVersion
	if !slices.Contains(page, [2]string{arguments, ""}) {
		t.Errorf("the page does not say %s: %q", arguments, page)
	}
	n := newNetwork(t)
	const token = "0123456789abcdef0123456789abcdef"
	for name, user := range map[string]int{"as the image says": -1, "as another user": 12345, "as root": 0} {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t, r, n, user, "DRAWGATE_TAKE_TOKEN="+token)
			c.start()
			if got := c.ask(""); !strings.Contains(got, "unauthorized") {
				t.Errorf("without the token: %s", got)
			}
			if got := c.ask(token); !shown(page[len(page)-1][1], got) {
				t.Errorf("the first take: %s\nthe page shows %s", got, page[len(page)-1][1])
			}
			cmd := exec.Command("runc", "exec", c.name(), "/usr/bin/drawgate", "status", "--key", "me")
			out, err := cmd.CombinedOutput()
			if err != nil || !regexp.MustCompile(`minute +requests +1 +10 +9 `).Match(out) {
				t.Errorf("in the container: %v\n%s", err, out)
			}
		})
	}
	t.Run("without a token", func(t *testing.T) {
		out, err := newContainer(t, r, n, -1).run()
		if err == nil || !strings.Contains(out, "configure server.tokens") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("another command", func(t *testing.T) {
		out, err := newContainer(t, r, n, -1).run("version")
		if err != nil || !strings.HasPrefix(out, "drawgate "+r.version) {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("zones and certificates", func(t *testing.T) {
		c := newContainer(t, r, n, -1)
		file := "policies: {daily: {limits: [{name: day, calendar: day, zone: Asia/Kathmandu, amount: 3}]}}\n"
		path := filepath.Join(c.bundle, "rootfs", "etc", "drawgate", "drawgate.yaml")
		if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := c.run("take", "--config", "/etc/drawgate/drawgate.yaml", "--store", "sqlite:/var/lib/drawgate/x.db", "--key", "me")
		if err != nil || !strings.Contains(out, "allowed: 2 of 3") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
