package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/drawgate/drawgate/config"
)

// offLine matches the lines of a starter file that somebody may switch on. A comment in words
// has a space behind its #.
var offLine = regexp.MustCompile(`(?m)^( *(?:- )?)#([^ ])`)

// The files are still valid when everything in them is switched on that is switched off.
func TestStarterFilesWithAllLines(t *testing.T) {
	t.Parallel()
	environ := []string{"AWS_REGION=eu-central-1"}
	for _, name := range []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GATEWAY_KEY"} {
		environ = append(environ, name+"=0123456789abcdef")
	}
	for _, s := range starters {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			text, err := starterFiles.ReadFile("starter/" + s.name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			files := map[string][]byte{starterName: offLine.ReplaceAll(text, []byte("$1$2"))}
			if files["limits.yaml"], err = os.ReadFile("../../deploy/envoy/limits.yaml"); err != nil {
				t.Fatal(err)
			}
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, err := config.Resolve(environ, config.Flags{Config: filepath.Join(dir, starterName)})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range c.Warnings {
				t.Error(w)
			}
		})
	}
}

// Below /etc, where a service may not write, the database is in the packages' folder; anywhere else
// it is next to the file.
func TestStarterFilesBelowEtc(t *testing.T) {
	t.Parallel()
	for _, s := range starters {
		text, err := starterFiles.ReadFile("starter/" + s.name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"drawgate.yaml", "/srv/etc/drawgate.yaml", "/etcetera/drawgate.yaml", "-"} {
			if got := placed(text, file); !bytes.Equal(got, text) {
				t.Errorf("%s: the file %s is %s", s.name, file, got)
			}
		}
		got := placed(text, "/etc/drawgate/drawgate.yaml")
		if s.name == "lambda" {
			continue // its store is a table
		}
		if !bytes.Contains(got, []byte("\nstore: sqlite:///var/lib/drawgate/drawgate.db #")) ||
			bytes.Contains(got, []byte("next to this file")) {
			t.Errorf("%s: below /etc it is\n%s", s.name, got)
		}
	}
}

// Each file that can be written is listed, and each one that is listed can be written.
func TestStarterFilesAreListed(t *testing.T) {
	t.Parallel()
	files, err := starterFiles.ReadDir("starter")
	if err != nil || len(files) != len(starters) {
		t.Errorf("there are %d files for %d choices, %v", len(files), len(starters), err)
	}
}

// The examples for AWS Lambda are folders that are deployed as they are, so each has the file. The
// one in Go may wait.
func TestLambdaExamplesHaveTheStarter(t *testing.T) {
	t.Parallel()
	want, err := starterFiles.ReadFile("starter/lambda.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wait := regexp.MustCompile(`(?m)^    wait: .*\n`)
	for _, path := range []string{"../../examples/lambda/drawgate.yaml", "../../examples/lambda-python/drawgate.yaml"} {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(wait.ReplaceAll(got, nil), want) {
			t.Errorf("%s is not what drawgate init lambda writes", path)
		}
	}
}
