// Command grafana writes the Grafana dashboards of this folder: go run . (in the folder).
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// files are the dashboards, by the names of their files.
var files = map[string]board{"drawgate-limits.json": limits, "drawgate-gateway.json": calls}

func main() {
	for name, b := range files {
		text, err := b.text()
		if err == nil {
			err = os.WriteFile(name, text, 0o644) //nolint:gosec // everybody may read it
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// text returns the dashboard as Grafana imports it.
func (b *board) text() ([]byte, error) {
	d, err := b.build()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// build makes the dashboard.
func (b *board) build() (dashboard.Dashboard, error) {
	d := dashboard.NewDashboardBuilder(b.title).Uid(b.uid).Description(b.about).Tags([]string{tag}).
		Editable().Tooltip(dashboard.DashboardCursorSyncCrosshair).Refresh("30s").Time("now-3h",
		"now").Timezone("browser").
		Link(dashboard.NewDashboardLinkBuilder("Drawgate").Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{tag}).AsDropdown(true).KeepTime(true).IncludeVars(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		WithVariable(choice("instance", "Server", "label_values(drawgate_build_info, instance)")).
		WithVariable(choice(b.by, b.label, fmt.Sprintf("label_values(%s{instance=~\"$instance\"}, %s)", b.from, b.by)))
	id := uint32(0)
	for _, r := range b.rows {
		id++
		d.WithRow(dashboard.NewRowBuilder(r.title).Id(id))
		for _, p := range r.panels {
			id++
			d.WithPanel(p.builder(id))
		}
	}
	return d.Build()
}

// choice is a variable whose values are all chosen at first.
func choice(name, label, query string) *dashboard.QueryVariableBuilder {
	all := []string{"$__all"}
	return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source()).
		Query(dashboard.StringOrMap{String: &query}).Definition(query).
		Multi(true).IncludeAll(true).Sort(dashboard.VariableSortAlphabeticalAsc).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Current(dashboard.VariableOption{
			Selected: new(true),
			Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value:    dashboard.StringOrArrayOfString{ArrayOfString: all},
		})
}
