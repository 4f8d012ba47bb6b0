package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// licenceOf returns the text of this project's licence, which is a known one.
func licenceOf(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLicencesAreKnownOrTheReleaseFails(t *testing.T) {
	t.Parallel()
	gpl := "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007\n\nThis program is free software: you can redistribute it and/or modify it " +
		"under the terms of the GNU General Public License as published by the Free Software Foundation, either version 3 of the License, " +
		"or (at your option) any later version."
	for name, c := range map[string]struct {
		files map[string]string
		want  string // in the error
	}{
		"known":    {files: map[string]string{"LICENSE": licenceOf(t), "NOTICE": "by somebody"}},
		"none":     {files: map[string]string{"NOTICE": "by somebody"}, want: "has no licence"},
		"unknown":  {files: map[string]string{"COPYING": "Do with it what your conscience allows."}, want: "it is not known what licence COPYING is"},
		"copyleft": {files: map[string]string{"LICENSE.txt": gpl}, want: "not in the list"},
		"mixed": {
			files: map[string]string{"LICENSE": licenceOf(t), "LICENSE-PART": "All rights reserved."},
			want:  "LICENSE-PART",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &module{path: "example.org/m", version: "v1.0.0"}
			dir := t.TempDir()
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.read(dir, dir); err != nil {
				t.Fatal(err)
			}
			err := m.classify()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Every file that has to be passed on is in the notices, and each text once.
func TestNoticesHaveEveryText(t *testing.T) {
	t.Parallel()
	text := string(notices("0.1.0", []*module{
		{path: "example.org/a", version: "v1.0.0", texts: []licenceText{
			{"LICENSE", "the same\n"}, {"NOTICE", "a's notice\n"},
		}},
		{path: "example.org/b", version: "v2.0.0", texts: []licenceText{{"part/LICENSE", "\nthe same\n"}}},
	}))
	for want, n := range map[string]int{
		"the same": 1, "a's notice": 1, "example.org/a v1.0.0 (LICENSE)\nexample.org/b v2.0.0 (part/LICENSE)\n\nthe same": 1,
	} {
		if strings.Count(text, want) != n {
			t.Errorf("%q is there %d times, want %d:\n%s", want, strings.Count(text, want), n, text)
		}
	}
}
