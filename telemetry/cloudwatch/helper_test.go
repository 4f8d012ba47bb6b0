package cloudwatch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// lines is a writer that keeps what it gets.
type lines = syncbuffer.Buffer

// read is what CloudWatch makes of lines: the values of each metric, by "name" and the dimensions,
// such as "name BucketType=RPM Policy=p".
type read map[string][]float64

// unitsOf are the units that the lines gave to metrics.
type unitsOf map[string]string

// parse reads lines as the specification of the embedded metric format says, and fails the test at
// whatever the specification does not allow.
func parse(t *testing.T, text string) (read, unitsOf) {
	t.Helper()
	if text != "" && !strings.HasSuffix(text, "\n") {
		t.Errorf("the last line does not end: %q", text)
	}
	got, units := read{}, unitsOf{}
	for line := range strings.Lines(text) {
		parseLine(t, strings.TrimSuffix(line, "\n"), got, units)
	}
	return got, units
}

// metadata is the member _aws, which must not have any other members.
type metadata struct {
	Timestamp         *int64
	CloudWatchMetrics []struct {
		Namespace  string
		Dimensions [][]string
		Metrics    []struct{ Name, Unit string }
	}
}

// units are those that the API of CloudWatch has and this package uses.
var units = []string{"Count", "Milliseconds"}

func parseLine(t *testing.T, line string, got read, unit unitsOf) {
	t.Helper()
	if len(line) > 256<<10 {
		t.Errorf("a line has %d bytes", len(line))
	}
	var root map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &root); err != nil {
		t.Errorf("%v in %q", err, line)
		return
	}
	var meta metadata
	d := json.NewDecoder(bytes.NewReader(root["_aws"]))
	d.DisallowUnknownFields()
	if err := d.Decode(&meta); err != nil {
		t.Errorf("_aws: %v in %q", err, line)
		return
	}
	if meta.Timestamp == nil || len(meta.CloudWatchMetrics) == 0 {
		t.Fatalf("no Timestamp or no CloudWatchMetrics: %q", line)
	}
	if at := time.UnixMilli(*meta.Timestamp); time.Since(at) > 14*24*time.Hour || time.Until(at) > 2*time.Hour {
		t.Errorf("CloudWatch does not take the time %v", at)
	}
	targets := map[string]bool{"_aws": true}
	for _, c := range meta.CloudWatchMetrics {
		if c.Namespace == "" || len(c.Namespace) > 255 || len(c.Dimensions) == 0 || len(c.Metrics) == 0 ||
			len(c.Metrics) > 100 {
			t.Errorf("namespace %q, %d sets of dimensions, %d metrics in %q", c.Namespace, len(c.Dimensions),
				len(c.Metrics), line)
		}
		for _, m := range c.Metrics {
			if targets[m.Name] || m.Name == "" || !slices.Contains(units, m.Unit) {
				t.Errorf("metric %q of unit %q in %q", m.Name, m.Unit, line)
			}
			targets[m.Name], unit[m.Name] = true, m.Unit
			values := valuesOf(t, m.Name, root[m.Name], len(c.Metrics) == 1)
			for _, set := range c.Dimensions {
				where := m.Name + dimensionsOf(t, root, set)
				got[where] = append(got[where], values...)
			}
		}
		for _, set := range c.Dimensions {
			for _, name := range set {
				targets[name] = true
			}
		}
	}
	for name := range root {
		if !targets[name] {
			t.Errorf("%q is neither a metric nor a dimension in %q", name, line)
		}
	}
}

// dimensionsOf reads a set of dimensions.
func dimensionsOf(t *testing.T, root map[string]json.RawMessage, set []string) (text string) {
	t.Helper()
	if len(set) > 30 {
		t.Errorf("%d dimensions", len(set))
	}
	for _, name := range set {
		var value string
		if err := json.Unmarshal(root[name], &value); err != nil {
			t.Errorf("dimension %q: %v", name, err)
		}
		if strings.TrimSpace(value) == "" || len(value) > 1024 ||
			strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("dimension %q has the value %q", name, value)
		}
		text += " " + name + "=" + value
	}
	return text
}

// valuesOf reads a metric's value: a number, or an array of at most 100 numbers. Retries that are
// alone in their line may also have counts, as AWS's exporters write them.
func valuesOf(t *testing.T, metric string, text json.RawMessage, alone bool) (list []float64) {
	t.Helper()
	if metric == cloudwatch.StoreRetries && alone && text[0] == '{' {
		return countedValues(t, text)
	}
	var one float64
	if json.Unmarshal(text, &one) == nil {
		return []float64{one}
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list) == 0 || len(list) > 100 {
		t.Errorf("a metric has the value %.200s: %v", text, err)
	}
	return list
}

// countedValues reads values with counts, and checks their statistics.
func countedValues(t *testing.T, text json.RawMessage) (list []float64) {
	t.Helper()
	var v struct {
		Values, Counts       []float64
		Min, Max, Count, Sum float64
	}
	if err := json.Unmarshal(text, &v); err != nil || len(v.Values) != len(v.Counts) || len(v.Values) > 100 {
		t.Fatalf("a metric has the value %.200s: %v", text, err)
	}
	sum := 0.0
	for i, n := range v.Counts {
		sum += n * v.Values[i]
		for range int(n) {
			list = append(list, v.Values[i])
		}
	}
	if v.Min != slices.Min(list) || v.Max != slices.Max(list) || int(v.Count) != len(list) || v.Sum != sum {
		t.Errorf("the statistics are not those of the values: %s", text)
	}
	return list
}

// sum returns the sum of a metric's values.
func (r read) sum(where string) (sum float64) {
	for _, v := range r[where] {
		sum += v
	}
	return sum
}

// want checks the sum and the number of a metric's values.
func (r read) want(t *testing.T, where string, n int, sum float64) {
	t.Helper()
	if len(r[where]) != n || math.Abs(r.sum(where)-sum) > 1e-9*max(1, sum) {
		t.Errorf("%s: %d values with the sum %v, want %d with %v", where, len(r[where]), r.sum(where), n, sum)
	}
}

// gemini has limits of all the types that documents ask for, and another one.
func gemini(name string) drawgate.Policy {
	return drawgate.Policy{Name: name, Limits: []drawgate.Limit{
		drawgate.BucketLimit("requests-a-minute", 5, time.Minute, 0),
		drawgate.BucketLimit("tokens-a-minute", 250_000, time.Minute, 0).Of("tokens"),
		drawgate.CalendarLimit("requests-a-day", 25, drawgate.Day, ""),
		drawgate.RollingLimit("burst", 4, 10*time.Second),
	}}
}

// newMetrics returns metrics that write to w when they are flushed.
func newMetrics(t testing.TB, w io.Writer) *cloudwatch.Metrics {
	t.Helper()
	m, err := cloudwatch.New(&cloudwatch.Options{EMF: w, Interval: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) }) // the test's own context has ended
	return m
}

// limiter returns a limiter on a store in memory that is watched by o.
func limiter(t testing.TB, p drawgate.Policy, o *drawgate.Observer) *drawgate.Limiter {
	t.Helper()
	l, err := drawgate.New(memstore.New(nil), p, &drawgate.Options{Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// take takes one request with that many tokens.
func take(t testing.TB, l *drawgate.Limiter, key string, tokens int64) drawgate.Decision {
	t.Helper()
	d, err := l.Allow(t.Context(), key, drawgate.Tokens(tokens))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// flush flushes and reads what was written.
func flush(t *testing.T, m *cloudwatch.Metrics, w *lines) read {
	t.Helper()
	if err := m.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, _ := parse(t, w.Take())
	return got
}

func of(metric, bucketType, policy string) string {
	if policy == "" {
		return fmt.Sprintf("%s BucketType=%s", metric, bucketType)
	}
	return fmt.Sprintf("%s BucketType=%s Policy=%s", metric, bucketType, policy)
}
