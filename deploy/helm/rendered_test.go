package helm_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/rendered.yaml")

// testdata/rendered.yaml is what the chart renders for a server with Envoy's service and a gateway.
// Tests that cannot compile Helm ("make test") read it; they know by the hash of the chart whether
// it is up to date.
func TestRendered(t *testing.T) {
	t.Parallel()
	values, _ := combination(0b1000011111)
	files, err := template(values)
	if err != nil {
		t.Fatal(err)
	}
	text := "# " + chartSum(t) + "\n"
	for _, name := range []string{"server.yaml", "gateway.yaml", "shared.yaml"} {
		text += "---\n" + strings.Trim(files["drawgate/templates/"+name], "\n") + "\n"
	}
	const path = "testdata/rendered.yaml"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != text {
		t.Errorf("%s is not what the chart renders: run go test -run Rendered -update (%v)", path, err)
	}
}

// chartSum returns the hash of what is rendered: the chart's own files.
func chartSum(t *testing.T) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir("drawgate", func(path string, e fs.DirEntry, err error) error {
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
		fmt.Fprintf(h, "%s\n%d\n%s", filepath.ToSlash(strings.TrimPrefix(name, "drawgate")), len(text), text)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
