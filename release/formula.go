package main

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// formula writes the formula for Homebrew, if it is known where the archives will be.
func (r *release) formula() error {
	if r.download == "" {
		return nil
	}
	t, err := template.New("formula").Parse(string(keptFile("drawgate.rb.tmpl")))
	if err != nil {
		return err
	}
	type archive struct{ URL, Sum string }
	data := struct {
		Version, Summary, Homepage string
		Systems, Processors        map[string]string // by Go's names
		Archives                   map[string]archive
	}{
		r.version, strings.ToUpper(summary[:1]) + summary[1:], homepage,
		map[string]string{"darwin": "macos", "linux": "linux"},
		map[string]string{"amd64": "intel", "arm64": "arm"},
		map[string]archive{},
	}
	for _, t := range r.targets {
		if t.os == "windows" {
			continue
		}
		name := r.name(t.os + "_" + t.arch + ".tar.gz")
		packed, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		data.Archives[t.os+"_"+t.arch] = archive{
			strings.TrimSuffix(r.download, "/") + "/" + name,
			hex.EncodeToString(digest(packed)),
		}
	}
	var text bytes.Buffer
	if err := t.Execute(&text, data); err != nil {
		return err
	}
	return r.put("drawgate.rb", text.Bytes())
}
