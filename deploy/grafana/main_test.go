package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// TestMain names the panels and queries to the SDK. It would accept anything in others.
func TestMain(m *testing.M) {
	r := cog.NewRuntime()
	r.RegisterDataqueryVariant(prometheus.VariantConfig())
	r.RegisterPanelcfgVariant(timeseries.VariantConfig())
	r.RegisterPanelcfgVariant(stat.VariantConfig())
	r.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	os.Exit(m.Run())
}

// The files of this folder are those that the generator writes.
func TestFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("*.json")
	if err != nil || len(found) != len(files) {
		t.Errorf("got %v, %v, want %d dashboards", found, err, len(files))
	}
	for name, b := range files {
		want, err := b.text()
		if err != nil {
			t.Fatalf("%s: %#v", name, err)
		}
		got, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes: run go run . in deploy/grafana (%v)", name, err)
		}
	}
}

// read decodes a dashboard, as strictly as Grafana's schema is.
func read(t *testing.T, name string) *dashboard.Dashboard {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	d := &dashboard.Dashboard{}
	if err := d.UnmarshalJSONStrict(text); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := d.Validate(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

// The schema notices a field that does not exist: in the dashboard, a panel's options and a query.
func TestSchemaRejectsUnknownFields(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("drawgate-limits.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"schemaVersion", "drawStyle", "reduceOptions", "legendFormat"} {
		wrong := bytes.Replace(text, []byte(`"`+field+`"`), []byte(`"made_up"`), 1)
		if err := (&dashboard.Dashboard{}).UnmarshalJSONStrict(wrong); err == nil {
			t.Errorf("another name for %s is accepted", field)
		}
	}
}

// Grafana's own schema accepts each dashboard. No two panels have one id or lie on each other, and
// each has a title, a description, the chosen data source, and queries for the chosen servers.
//
// req: B10, C11, A13
func TestSchemaAcceptsDashboards(t *testing.T) {
	t.Parallel()
	for name := range files {
		d := read(t, name)
		ids, taken := map[uint32]bool{}, map[string]string{}
		for _, p := range d.Panels {
			if p.RowPanel != nil {
				if ids[p.RowPanel.Id] || len(p.RowPanel.Panels) > 0 {
					t.Errorf("%s: row %q has the id of another one, or is collapsed", name, *p.RowPanel.Title)
				}
				ids[p.RowPanel.Id] = true
				continue
			}
			title := *p.Panel.Title
			if ids[*p.Panel.Id] {
				t.Errorf("%s: %q has the id of another panel", name, title)
			}
			ids[*p.Panel.Id] = true
			if title == "" || !strings.HasSuffix(*p.Panel.Description, ".") || len(p.Panel.Targets) == 0 ||
				*p.Panel.Datasource.Uid != "${datasource}" {
				t.Errorf("%s: %q has no description, no query or a data source of its own", name, title)
			}
			g := p.Panel.GridPos
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					at := fmt.Sprint(x, y)
					if other, ok := taken[at]; ok || x >= 24 {
						t.Fatalf("%s: %q lies on %q or beyond the page", name, title, other)
					}
					taken[at] = title
				}
			}
		}
	}
}

// The panels that were asked for by name are there.
//
// req: B10, C11
func TestPanelsThatWereAskedFor(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"drawgate-limits.json": {
			"Hits by type", "Average wait", "Queue depth", "Waiting callers", "Units available per bucket",
			"Usage against limits", "Refusals by reason",
			"Store latency", "Breaker of the store", "Fallback",
		},
		"drawgate-gateway.json": {"Incidents", "Circuits", "Average wait", "Queue depth", "Usage against limits"},
	} {
		var got []string
		for _, p := range read(t, name).Panels {
			if p.Panel != nil {
				got = append(got, *p.Panel.Title)
			}
		}
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%s has no panel %q, but %q", name, w, got)
			}
		}
	}
}
