package config_test

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/drawgate/drawgate/config"
)

var update = flag.Bool("update", false, "write schema.json and the golden files")

func TestSchemaIsUpToDate(t *testing.T) {
	t.Parallel()
	want := config.Settings().JSONSchema()
	if *update {
		if err := os.WriteFile("schema.json", want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(config.Schema(), want) {
		t.Error("schema.json is not what the tables of settings say: run go generate ./config")
	}
}

// The tables of the page are those of the settings.
func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	const path = "../docs/configuration.md"
	text := page(t, path)
	want, err := config.Settings().Reference(text)
	switch {
	case err != nil:
		t.Error(err)
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	case text != want:
		t.Error("its tables are not those of the settings: run go generate ./config")
	}
}

func compileSchema(t testing.TB) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(config.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("drawgate.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("drawgate.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// conforms checks a YAML file against the schema, as an editor does.
func conforms(t testing.TB, s *validator.Schema, data []byte) error {
	t.Helper()
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return err
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return s.Validate(doc)
}

// The schema and the parser accept every preset, and every YAML file of the repository with
// policies.
//
// req: C2, B2, D1
func TestEveryFileConformsToTheSchema(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	found := 0
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && e.Name() != ".." ||
			slices.Contains([]string{"testdata", "benchmarks", "node_modules", "python"}, e.Name())):
			return filepath.SkipDir
		case e.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".yml":
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(data, []byte("policies:")) && !bytes.Contains(data, []byte("\npolicies:")) {
			return err
		}
		found++
		if err := conforms(t, s, data); err != nil {
			t.Errorf("%s: got %v, want it to conform to the schema", path, err)
		}
		if _, problems := config.Parse(path, data); len(problems) > 0 {
			t.Error(config.Problems(problems))
		}
		return nil
	})
	if err != nil || found < len(config.Presets()) {
		t.Errorf("%d files found, %v", found, err)
	}
}
