package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// tag is on all dashboards, which link each other by it.
const tag = "drawgate"

// board is a dashboard.
type board struct {
	title, uid, about string
	// the variable beside the server: its label in the metrics, its name on the page, and a metric
	// that has it
	by, label, from string
	rows            []row
}

type row struct {
	title  string
	panels []panel
}

// panel shows the answers to queries.
type panel struct {
	title, about string
	kind         kind
	unit         string     // of the values; "" is a number
	marks        []mark     // colours from some value on
	states       []mark     // of a timeline: the values that there are
	queries      []question // at least one
}

type question struct{ query, legend string }

// mark gives a value a colour, and a text in a timeline.
type mark struct {
	value float64
	color string
	text  string
}

type kind int

const (
	lines    kind = iota // over time
	bars                 // over time, stacked: parts of a whole
	number               // the last value
	timeline             // states over time
)

// Sizes on Grafana's grid, which is 24 wide.
const (
	width, height           = 8, 8
	numberWidth, numberHigh = 4, 4
)

// one is a list of one query.
func one(query, legend string) []question { return []question{{query, legend}} }

// source is the data source that the reader chooses.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
}

// builder returns the panel as the SDK builds it.
func (p *panel) builder(id uint32) cog.Builder[dashboard.Panel] {
	switch p.kind {
	case number:
		return stat.NewPanelBuilder().Id(id).Title(p.title).Description(p.about).Datasource(source()).
			Targets(p.targets()).
			Span(numberWidth).Height(numberHigh).Unit(p.unit).Thresholds(thresholds(p.marks)).
			ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
	case timeline:
		return statetimeline.NewPanelBuilder().Id(id).Title(p.title).Description(p.about).Datasource(source()).
			Targets(p.targets()).
			Span(width).Height(height).Mappings(mappings(p.states)).Thresholds(thresholds(p.states)).
			ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds))
	}
	b := timeseries.NewPanelBuilder().Id(id).Title(p.title).Description(p.about).Datasource(source()).
		Targets(p.targets()).
		Span(width).Height(height).Unit(p.unit).Min(0).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).
			Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).
			Sort(common.SortOrderDescending))
	if len(p.marks) > 0 {
		b.Thresholds(thresholds(p.marks)).ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().
			Mode(common.GraphThresholdsStyleModeLine))
	}
	if p.kind == bars {
		b.FillOpacity(60).DrawStyle(common.GraphDrawStyleBars).
			Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	}
	return b
}

func (p *panel) targets() (all []cog.Builder[variants.Dataquery]) {
	for i, q := range p.queries {
		t := prometheus.NewDataqueryBuilder().Expr(q.query).LegendFormat(q.legend).RefId(string(rune('A' +
			i))).Datasource(source())
		if p.kind == number {
			t.Instant()
		} else {
			t.Range()
		}
		all = append(all, t)
	}
	return all
}

// thresholds are green below the first mark.
func thresholds(marks []mark) *dashboard.ThresholdsConfigBuilder {
	steps := []dashboard.Threshold{{Color: "green"}}
	for _, m := range marks {
		steps = append(steps, dashboard.Threshold{Value: new(m.value), Color: m.color})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}

// mappings show texts instead of values.
func mappings(states []mark) []dashboard.ValueMapping {
	texts := dashboard.NewValueMap()
	for _, s := range states {
		texts.Options[fmt.Sprint(s.value)] = dashboard.ValueMappingResult{Text: &s.text, Color: &s.color}
	}
	return []dashboard.ValueMapping{{ValueMap: texts}}
}
