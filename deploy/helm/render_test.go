package helm_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// objects is what the chart renders, by kind.
type objects struct {
	configMaps  []*corev1.ConfigMap
	services    []*corev1.Service
	accounts    []*corev1.ServiceAccount
	deployments []*appsv1.Deployment
	budgets     []*policyv1.PodDisruptionBudget
	policies    []*networkingv1.NetworkPolicy
	monitors    []*monitoringv1.ServiceMonitor
	notes       string
}

// kinds read a document strictly: a field that the type does not have is an error, and so is one
// that appears twice.
var kinds = map[string]func(o *objects, doc []byte) (metav1.Object, error){
	"v1/ConfigMap":                            one(func(o *objects) *[]*corev1.ConfigMap { return &o.configMaps }),
	"v1/Service":                              one(func(o *objects) *[]*corev1.Service { return &o.services }),
	"v1/ServiceAccount":                       one(func(o *objects) *[]*corev1.ServiceAccount { return &o.accounts }),
	"apps/v1/Deployment":                      one(func(o *objects) *[]*appsv1.Deployment { return &o.deployments }),
	"policy/v1/PodDisruptionBudget":           one(func(o *objects) *[]*policyv1.PodDisruptionBudget { return &o.budgets }),
	"networking.k8s.io/v1/NetworkPolicy":      one(func(o *objects) *[]*networkingv1.NetworkPolicy { return &o.policies }),
	"monitoring.coreos.com/v1/ServiceMonitor": one(func(o *objects) *[]*monitoringv1.ServiceMonitor { return &o.monitors }),
}

func one[T any, P interface {
	*T
	metav1.Object
}](list func(*objects) *[]P) func(*objects, []byte) (metav1.Object, error) {
	return func(o *objects, doc []byte) (metav1.Object, error) {
		p := P(new(T))
		if err := yaml.UnmarshalStrict(doc, p); err != nil {
			return nil, err
		}
		*list(o) = append(*list(o), p)
		return p, nil
	}
}

// documents separates what a template renders.
var documents = regexp.MustCompile(`(?m)^---$`)

// render renders the chart.
func render(values map[string]any) (*objects, error) {
	files, err := template(values)
	if err != nil {
		return nil, err
	}
	return decode(files)
}

// decode reads what was rendered.
func decode(files map[string]string) (*objects, error) {
	o := &objects{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			o.notes = files[name]
			continue
		}
		for _, doc := range documents.Split(files[name], -1) {
			if err := o.add([]byte(doc)); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, doc)
			}
		}
	}
	return o, nil
}

// add decodes one document, which may be empty.
func (o *objects) add(doc []byte) error {
	var about metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &about); err != nil {
		return err
	}
	if about == (metav1.TypeMeta{}) {
		var rest any
		if err := yaml.Unmarshal(doc, &rest); err != nil || rest != nil {
			return fmt.Errorf("it has no kind: %w", err)
		}
		return nil
	}
	read, ok := kinds[about.APIVersion+"/"+about.Kind]
	if !ok {
		return fmt.Errorf("the chart renders no %s of %s", about.Kind, about.APIVersion)
	}
	_, err := read(o, doc)
	return err
}

// mustRender renders the chart, with values as a file for helm has them.
func mustRender(t *testing.T, text string) *objects {
	t.Helper()
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	o, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// built is the folder of the program; "" if no test needed it.
var built string

// binary builds the program once, as the image has it, and returns its path.
var binary = sync.OnceValues(func() (string, error) {
	var err error
	if built, err = os.MkdirTemp("", "drawgate"); err != nil {
		return "", err
	}
	path := filepath.Join(built, "drawgate")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", path, "./cmd/drawgate")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// program returns the path of the program.
func program(t *testing.T) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Helm tells of each link that it follows
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// await waits for something that must happen.
func await(t *testing.T, otherwise string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !happened(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}

// output collects what a program prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

var _ io.Writer = (*output)(nil)
