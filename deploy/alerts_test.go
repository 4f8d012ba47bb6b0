package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/drawgate/drawgate/internal/needs"
)

// The rules for Prometheus, and their tests.
const (
	alertFile = "prometheus/drawgate-alerts.yaml"
	alertTest = "prometheus/drawgate-alerts.test.yaml"
)

// alert is one rule.
type alert struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

// alerts returns all rules.
func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	readYAML(t, alertFile, &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 5 {
		t.Fatalf("got %d alerts, want more", len(all))
	}
	return all
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// promtool runs promtool and returns what it printed. A failure fails the test.
func promtool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), needs.Program(t, "promtool"), args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// promtool accepts the alerts, and its tests of them pass: when each begins and ends, and what it
// says.
//
// req: C11
func TestPromtoolTestsAlerts(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", alertFile)
	promtool(t, "test", "rules", alertTest)
}

// Each alert says what it means and what to do, how urgent it is, and is tested: that it fires, and
// that it does not.
//
// req: C11
func TestAlertsSayWhatToDo(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Cases []struct {
				Name string `yaml:"alertname"`
				Want []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, alertTest, &file)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			fires[c.Name] = fires[c.Name] || len(c.Want) > 0
			quiet[c.Name] = quiet[c.Name] || len(c.Want) == 0
		}
	}
	for _, a := range alerts(t) {
		for _, name := range []string{"summary", "description", "action"} {
			if a.Annotations[name] == "" {
				t.Errorf("%s has no %s", a.Alert, name)
			}
		}
		if !slices.Contains([]string{"info", "warning", "critical"}, a.Labels["severity"]) {
			t.Errorf("%s has the severity %q", a.Alert, a.Labels["severity"])
		}
		if !fires[a.Alert] || !quiet[a.Alert] {
			t.Errorf("%s tests that %s fires: %v, and that it does not: %v; want both", alertTest, a.Alert,
				fires[a.Alert], quiet[a.Alert])
		}
	}
}

// docs/operations.md lists every alert, and no other.
func TestOperationsListAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, a := range alerts(t) {
		want = append(want, a.Alert)
	}
	for _, f := range regexp.MustCompile("(?m)^\\| `(Drawgate[A-Za-z]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		got = append(got, f[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/operations.md lists %q, want %q", got, want)
	}
}

// variables are what Grafana puts into queries, with values for a test of a few minutes.
var variables = strings.NewReplacer("$__rate_interval", "30s", "$__range", "10m", "$instance", ".+", "$policy", ".+",
	"$upstream", ".+")

var choices = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// dashboardQueries returns the queries of all panels and variables, by dashboard and title.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("grafana/*.json")
	if err != nil || len(files) < 2 {
		t.Fatalf("got the dashboards %q (%v), want two", files, err)
	}
	all := map[string]string{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct {
				ID      int
				Title   string
				Targets []struct{ Expr, RefID string }
			}
			Templating struct {
				List []struct{ Type, Name, Query string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		add := func(where, query string) {
			if query = variables.Replace(query); query == "" || strings.Contains(query, "$") {
				t.Errorf("%s, %s: the test has no value for a variable in %q", path, where, query)
			}
			all[path+": "+where] = query
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				add(fmt.Sprintf("panel %d %s, %s", p.ID, p.Title, target.RefID), target.Expr)
			}
		}
		for _, v := range d.Templating.List {
			if v.Type == "datasource" {
				continue
			}
			f := choices.FindStringSubmatch(v.Query)
			if f == nil {
				t.Fatalf("%s: the choices of %s are %q, want label_values", path, v.Name, v.Query)
			}
			add("variable "+v.Name, fmt.Sprintf("count by (%s) (%s)", f[2], f[1]))
		}
	}
	return all
}

// promtool understands the queries of the dashboards.
//
// req: B10
func TestPromtoolChecksDashboards(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("groups:\n- name: dashboards\n  rules:\n")
	i := 0
	for where, query := range dashboardQueries(t) {
		i++
		fmt.Fprintf(&b, "  - {record: 'query:%d', expr: %q} # %s\n", i, query, where)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
}
