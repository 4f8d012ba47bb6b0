package telemetry_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/telemetry"
)

const document = "../docs/metrics.md"

// descriptions collects what is registered.
type descriptions struct {
	prometheus.Registerer
	labels map[string][]string // by metric
}

var described = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ".*", unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func (d *descriptions) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc, 100)
	c.Describe(ch)
	close(ch)
	for desc := range ch {
		f := described.FindStringSubmatch(desc.String())
		if f == nil {
			panic("another form of description: " + desc.String())
		}
		var labels []string
		for l := range strings.SplitSeq(f[2]+","+f[3], ",") {
			if name, _, _ := strings.Cut(l, "="); name != "" {
				labels = append(labels, name)
			}
		}
		d.labels[f[1]] = labels
	}
	return d.Registerer.Register(c)
}

// registered returns every metric and its labels, sorted.
func registered(t *testing.T) map[string][]string {
	t.Helper()
	d := &descriptions{prometheus.NewPedanticRegistry(), map[string][]string{}}
	if _, err := telemetry.NewMetrics(d, nil); err != nil {
		t.Fatal(err)
	}
	for _, l := range d.labels {
		slices.Sort(l)
	}
	return d.labels
}

// documented returns the rows of docs/metrics.md that describe metrics: their cells, by name.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 4 || !slices.Contains([]string{"counter", "gauge", "histogram"}, strings.TrimSpace(cells[1])) {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[strings.Trim(cells[0], "`")] = cells
	}
	return rows
}

// The metrics that were required exist by their exact names, with the required labels.
//
// req: B9 D7 E8 E9
func TestRequiredMetricsKeepTheirNames(t *testing.T) {
	t.Parallel()
	have := registered(t)
	for name, labels := range map[string][]string{
		"rate_limit_hits_total": {"type", "identifier"}, "rate_limit_waits_total": {"type"},
		"rate_limit_wait_duration_seconds": {"type"},
		"rate_limit_current_usage":         {"period"}, "rate_limit_max_allowed": {"period"},
		"rate_limit_exceeded_total":         {"period"},
		"rate_limit_check_duration_seconds": nil, "rate_limit_window_reset_seconds": {"period"},
		"rate_limit_rejections_total": {"reason"}, "rate_limit_tokens_remaining": {"scope"},
		"rate_limit_backend_errors_total":    nil,
		"rate_limit_shadow_divergence_total": nil,
	} {
		got, ok := have[name]
		if !ok {
			t.Errorf("there is no %s", name)
		}
		for _, l := range labels {
			if !slices.Contains(got, l) {
				t.Errorf("%s has labels %v, without %s", name, got, l)
			}
		}
	}
}

// notLinted maps names that promlint objects to, to the reason why they stay. There are none: the
// required names pass as well.
var notLinted = map[string]string{}

// promlint accepts the names of all metrics.
func TestNamesPassPromlint(t *testing.T) {
	t.Parallel()
	r := newRig(t, &telemetry.Options{Lines: func() []drawgate.Line {
		return []drawgate.Line{{
			Waiting: 1,
			Tickets: 1,
		}}
	}})
	r.m.Declare(engine.Policy{Policy: tiers("p", 1)})
	allow(t, r.limiter(tiers("p", 1)), "k", 2)
	for i, report := 0, reportCalls(r.m); i < 7; i++ {
		report(i)
	}
	all, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if _, ok := notLinted[p.Metric]; !ok {
			t.Errorf("promlint objects to %s: %s", p.Metric, p.Text)
		}
	}
	if len(all) < len(registered(t))-5 { // those of a guard and a store with a timeout, which are not there
		t.Errorf("got only %d metrics to check", len(all))
	}
}
