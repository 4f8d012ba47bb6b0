package docs_test

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/taskqueue/queuemetrics"
	"github.com/drawgate/drawgate/telemetry"
	"github.com/drawgate/drawgate/telemetry/cloudwatch"
)

var update = flag.Bool("update", false, "write the tables of metrics.md")

// row is a metric in a table: its cells, without the name.
type row struct {
	name  string
	cells []string
}

// The tables of metrics.md are those of the code: every metric with its labels, and its help text
// as what it means. Rows keep their order; new ones come last.
func TestMetricTables(t *testing.T) {
	t.Parallel()
	limits, process, upstreams := split(prometheusRows(t))
	queues := rowsOf(queuemetrics.New(t.Context(), nil, nil))
	for i := range queues { // all of them are gauges
		queues[i].cells = queues[i].cells[1:]
	}
	was := read(t, "metrics.md")
	text := was
	for _, table := range []struct {
		mark string
		head []string
		rows []row
	}{
		{"limits", []string{"metric", "type", "labels", "meaning"}, limits},
		{"process", []string{"metric", "type", "labels", "meaning"}, process},
		{"upstreams", []string{"metric", "type", "labels", "meaning"}, upstreams},
		{"queues", []string{"metric", "labels", "meaning"}, queues},
		{"cloudwatch", []string{"metric", "unit", "dimensions", "meaning", "statistic to use"}, cloudwatchRows(t)},
	} {
		if len(table.rows) < 2 {
			t.Errorf("table %s has %d rows", table.mark, len(table.rows))
		}
		block := regexp.MustCompile(`(?s)(<!-- ` + table.mark + `: [^\n]* -->\n\n)(.*?)(\n<!-- end -->)`)
		parts := block.FindStringSubmatchIndex(text)
		if parts == nil {
			t.Fatalf("metrics.md has no place for the table %s", table.mark)
		}
		text = text[:parts[4]] + written(table.head, table.rows, text[parts[4]:parts[5]]) + text[parts[5]:]
	}
	if text == was {
		return
	}
	if !*update {
		t.Fatal("metrics.md does not have the metrics of the code: run go test ./docs -run MetricTables -update")
	}
	if err := os.WriteFile("metrics.md", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// written writes a table, in the order of the one that is there.
func written(head []string, rows []row, old string) string {
	at := func(r row) int {
		if i := strings.Index(old, "| `"+r.name+"` |"); i >= 0 {
			return i
		}
		return len(old)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return at(a) - at(b) })
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n%s|\n", strings.Join(head, " | "), strings.Repeat("|---", len(head)))
	for _, r := range rows {
		fmt.Fprintf(&b, "| `%s` |", r.name)
		for _, c := range r.cells {
			b.WriteString(strings.TrimRight(" "+c, " ") + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// registerer keeps what is registered.
type registerer struct {
	prometheus.Registerer
	rows []row
}

func (r *registerer) Register(c prometheus.Collector) error {
	r.rows = append(r.rows, rowsOf(c)...)
	return nil
}

// prometheusRows returns the metrics of package telemetry.
func prometheusRows(t *testing.T) []row {
	t.Helper()
	r := &registerer{}
	if _, err := telemetry.NewMetrics(r, nil); err != nil {
		t.Fatal(err)
	}
	return r.rows
}

// split divides metrics into the tables that they belong to.
func split(all []row) (limits, process, upstreams []row) {
	for _, r := range all {
		switch {
		case strings.HasPrefix(r.name, "rate_limit_"):
			limits = append(limits, r)
		case strings.Contains(r.cells[1], "`upstream`"):
			upstreams = append(upstreams, r)
		default:
			process = append(process, r)
		}
	}
	return limits, process, upstreams
}

var described = regexp.MustCompile(
	`^Desc\{fqName: "([^"]*)", help: (".*"), unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// rowsOf describes the metrics of a collector: type, labels and meaning.
func rowsOf(c prometheus.Collector) (rows []row) {
	ch := make(chan *prometheus.Desc, 100)
	c.Describe(ch)
	close(ch)
	for desc := range ch {
		f := described.FindStringSubmatch(desc.String())
		if f == nil {
			panic("another form of description: " + desc.String())
		}
		help, err := strconv.Unquote(f[2])
		if err != nil {
			panic(err)
		}
		var labels []string
		for l := range strings.SplitSeq(f[3]+","+f[4], ",") {
			if name, _, _ := strings.Cut(l, "="); name != "" {
				labels = append(labels, "`"+name+"`")
			}
		}
		rows = append(rows, row{f[1], []string{typeOf(c, f[1]), strings.Join(labels, ", "), meaning(f[1], help)}})
	}
	return rows
}

// typeOf returns the type of a metric. Those that end with _total are counters: promlint sees to
// it.
func typeOf(c prometheus.Collector, name string) string {
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	switch c.(type) {
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case *prometheus.GaugeVec, *queuemetrics.Collector:
		return "gauge"
	}
	ch := make(chan prometheus.Metric, 1000)
	c.Collect(ch)
	close(ch)
	for m := range ch {
		var d dto.Metric
		if m.Write(&d) == nil && d.Histogram != nil && strings.Contains(m.Desc().String(), `"`+name+`"`) {
			return "histogram"
		}
	}
	return "gauge"
}

// linked are the words of a meaning that link to something.
var linked = map[string][2]string{
	"drawgate_sns_messages_total":     {"SNS topic", "aws.md#alarms-and-messages"},
	"drawgate_upstream_circuit_state": {"circuit", "outbound.md#circuits"},
	"drawgate_limit_milestones_total": {"warnings", "#warnings"},
}

// meaning makes a cell of a help text: without the full stop, and in lower case.
func meaning(name, help string) string {
	if l, ok := linked[name]; ok {
		help = strings.Replace(help, l[0], "["+l[0]+"]("+l[1]+")", 1)
	}
	help = strings.TrimSuffix(help, ".")
	first, _, _ := strings.Cut(help, " ")
	if strings.ToLower(first[1:]) == first[1:] { // not a name such as DynamoDB
		help = strings.ToLower(first[:1]) + help[1:]
	}
	return help
}

// cloudwatchRows returns the metrics of package cloudwatch: what they mean by the comments of their
// constants, units and dimensions by a request that has all of them.
func cloudwatchRows(t *testing.T) (rows []row) {
	t.Helper()
	sent := map[string][]string{} // the unit, and the sets of dimensions
	for _, d := range everythingPut(t) {
		name := *d.MetricName
		if sent[name] == nil {
			sent[name] = []string{string(d.Unit)}
		}
		var set []string
		for _, dim := range d.Dimensions {
			set = append(set, "`"+*dim.Name+"`")
		}
		dims := strings.Join(set, ", ")
		if len(set) == 0 {
			dims = "none"
		}
		if !slices.Contains(sent[name][1:], dims) {
			sent[name] = append(sent[name], dims)
		}
	}
	f, err := parser.ParseFile(token.NewFileSet(), "../telemetry/cloudwatch/names.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		text, statistic, ok := strings.Cut(strings.Join(strings.Fields(v.Doc.Text()), " "), " Statistic: ")
		if !ok {
			return true
		}
		statistic = strings.TrimSuffix(statistic, ".")
		name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil || sent[name] == nil {
			t.Fatalf("%s is not sent, %v", name, err)
		}
		dims := sent[name][1:]
		slices.SortFunc(dims, func(a, b string) int { return strings.Count(b, "`") - strings.Count(a, "`") })
		rows = append(rows, row{name, []string{
			sent[name][0], strings.Join(dims, "; "), meaning(name, text),
			statistic,
		}})
		delete(sent, name)
		return true
	})
	if len(sent) > 0 {
		t.Errorf("sent, but not described in names.go: %v", sent)
	}
	return rows
}

// putter keeps what is sent to CloudWatch.
type putter struct{ data []types.MetricDatum }

func (p *putter) PutMetricData(
	_ context.Context, in *sdk.PutMetricDataInput, _ ...func(*sdk.Options),
) (*sdk.PutMetricDataOutput, error) {
	p.data = append(p.data, in.MetricData...)
	return &sdk.PutMetricDataOutput{}, nil
}

// everythingPut makes everything happen that CloudWatch hears of.
func everythingPut(t *testing.T) []types.MetricDatum {
	t.Helper()
	p := &putter{}
	m, err := cloudwatch.New(&cloudwatch.Options{Put: p, Interval: -1})
	if err != nil {
		t.Fatal(err)
	}
	l, err := drawgate.New(memstore.New(nil), drawgate.PerMinute("p", 1), &drawgate.Options{Observer: m.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one is refused
		if _, err := l.Allow(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
	}
	m.Observer().Called(&drawgate.StoreCall{Op: "take", Took: time.Millisecond})
	m.Guard().FallbackActivated(&guard.FallbackActivated{})
	m.Store().Called(&dynamostore.Call{Op: "take", Attempts: 3, Conflicts: 1, Throttled: 1, Took: time.Millisecond})
	m.Outbound().Called(&outbound.Event{Outcome: outbound.Refused})
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p.data
}
