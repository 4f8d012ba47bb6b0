package deploy_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/drawgate/drawgate/internal/redistest"
)

// object is what these tests read of Kubernetes' objects.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Template struct {
			Spec struct{ Containers []chartContainer }
		}
	}
}

type chartContainer struct {
	Args  []string
	Env   []struct{ Name, Value string }
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	LivenessProbe  chartProbe `yaml:"livenessProbe"`
	ReadinessProbe chartProbe `yaml:"readinessProbe"`
}

type chartProbe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// What the chart of helm renders is what the program understands: it accepts the files, starts with
// the arguments, and answers the probes. Helm takes minutes to compile, so this reads what the
// tests of the chart have rendered, and fails if the chart has changed since; those, in "make
// long", have the rest.
func TestChartStartsTheProgram(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("helm/testdata/rendered.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if sum := chartSum(t); first != "# "+sum {
		t.Errorf("the chart has changed: run go test -run Rendered -update in deploy/helm (%s, want %s)", sum, first)
	}
	files := map[string]string{}
	var pods []object
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o object
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch o.Kind {
		case "ConfigMap":
			files[o.Metadata.Name] = o.Data["drawgate.yaml"]
		case "Deployment":
			pods = append(pods, o)
		}
	}
	if len(pods) != 2 {
		t.Fatalf("%d Deployments, want 2", len(pods))
	}
	for _, p := range pods {
		t.Run(p.Metadata.Name, func(t *testing.T) {
			t.Parallel()
			startChart(t, files[p.Metadata.Name], &p.Spec.Template.Spec.Containers[0])
		})
	}
}

// startChart runs a rendered container's program on loopback addresses, on a store of its own.
func startChart(t *testing.T, file string, c *chartContainer) {
	t.Helper()
	path := binary(t)
	s := &testbed{t: t, dir: t.TempDir(), swap: strings.NewReplacer()}
	secrets := filepath.Join(s.dir, "secrets")
	if err := os.Mkdir(secrets, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"secrets/salt":           "salt-0123456789abcdef",
		"secrets/OPENAI_API_KEY": "sk-0123456789abcdef",
		"drawgate.yaml":          strings.ReplaceAll(file, "/run/secrets/drawgate/", secrets+"/"),
	} {
		s.write(name, value)
	}
	env := []string{
		"DRAWGATE_CONFIG=" + s.dir + "/drawgate.yaml", "DRAWGATE_STORE=sqlite://" + filepath.Join(fastDir(t), "a.db"),
		"DRAWGATE_ADMIN_TOKEN=admin-0123456789abcdef", "ALICE_KEY=vk-alice-0123456789",
	}
	at := map[string]string{} // ports
	args := slices.Clone(c.Args)
	moved := map[string]string{}
	for _, p := range c.Ports {
		at[p.Name] = redistest.FreeAddr(t)
		moved[fmt.Sprintf(":%d", p.ContainerPort)] = at[p.Name]
	}
	for i, a := range args {
		args[i] = cmp.Or(moved[a], a)
	}
	for _, e := range c.Env {
		if strings.HasSuffix(e.Name, "_LISTEN") {
			env = append(env, e.Name+"="+cmp.Or(moved[e.Value], e.Value))
		}
	}
	check := exec.Command(path, "validate")
	check.Env = env
	if out, err := check.CombinedOutput(); err != nil || bytes.Contains(out, []byte("warning:")) {
		t.Errorf("%v\n%s", err, out)
	}
	s.startWith(env, path, args...)
	for _, probe := range []chartProbe{c.LivenessProbe, c.ReadinessProbe} {
		s.await("http://"+at[probe.HTTPGet.Port]+probe.HTTPGet.Path, http.StatusOK)
	}
}

// chartSum returns the hash of the chart's own files, as the tests in helm compute it.
func chartSum(t *testing.T) string {
	t.Helper()
	const root = "helm/drawgate"
	var names []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && filepath.Ext(path) != ".md" {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%s\n%d\n%s", filepath.ToSlash(strings.TrimPrefix(name, root)), len(text), text)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
