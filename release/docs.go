package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// kept are the files that are packed as they are.
//
//go:embed files
var kept embed.FS

// keptFile returns the text of a file in the folder files.
func keptFile(name string) []byte {
	text, err := kept.ReadFile("files/" + name)
	if err != nil { // it is embedded
		panic(err) //nolint:forbidigo // a mistake of this program
	}
	return text
}

// file is a file, or an empty folder, that is packed.
type file struct {
	name string // with slashes, relative to the archive's root
	mode fs.FileMode
	data []byte
}

// docs are the documents that belong to the program.
type docs struct {
	man         []file // manual pages: drawgate.1 and others
	completions []file // drawgate.bash, drawgate.zsh, drawgate.fish, drawgate.ps1
	licence     []byte
	notices     []byte // the licences of what is linked in
	changelog   []byte
	pages       []file // docs/… and deploy/…
}

// write lets the program write its documents: that of this machine, which can run.
func (r *release) write(ctx context.Context) error {
	host := target{runtime.GOOS, runtime.GOARCH}
	if !slices.Contains(r.targets, host) {
		return fmt.Errorf("the program writes its manual pages: add %s to -targets, so that it can run here", host)
	}
	program := r.program(host)
	dir, err := os.MkdirTemp("", "drawgate-man")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing can be done
	if _, err := output(exec.CommandContext(ctx, program, "man", dir)); err != nil {
		return err
	}
	d := &docs{notices: notices(r.version, r.modules)}
	if d.man, err = readAll(dir); err != nil {
		return err
	}
	for _, shell := range []struct{ name, end string }{
		{"bash", "bash"},
		{"zsh", "zsh"},
		{"fish", "fish"},
		{"powershell", "ps1"},
	} {
		text, err := output(exec.CommandContext(ctx, program, "completion", shell.name))
		if err != nil {
			return err
		}
		d.completions = append(d.completions, file{"drawgate." + shell.end, 0o644, []byte(text)})
	}
	if d.pages, err = pages(os.DirFS(r.root)); err != nil {
		return err
	}
	var errs [2]error
	d.licence, errs[0] = os.ReadFile(filepath.Join(r.root, "LICENSE"))
	d.changelog, errs[1] = os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	r.docs = d
	return errors.Join(append(errs[:], os.WriteFile(filepath.Join(r.out, r.name("NOTICES.txt")), d.notices, 0o644))...)
}

// readAll returns the files of a folder, in the order of their names.
func readAll(dir string) (list []file, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		text, readErr := os.ReadFile(filepath.Join(dir, e.Name()))
		list, err = append(list, file{e.Name(), 0o644, text}), errors.Join(err, readErr)
	}
	return list, err
}

// name returns the name of a file of the release.
func (r *release) name(rest string) string { return "drawgate_" + r.version + "_" + rest }

// under returns files below a folder.
func under(dir string, list []file) (moved []file) {
	for _, f := range list {
		f.name = path.Join(dir, f.name)
		moved = append(moved, f)
	}
	return moved
}

// examples are the folders below deploy that are packed, for what stands in front of a server and
// around it.
var examples = []string{
	"aws", "caddy", "compose", "envoy", "grafana", "haproxy", "helm/drawgate", "nginx",
	"prometheus", "traefik",
}

// pages returns the documentation of a repository, without results and images, and the
// examples. They keep their names, so that links lead from one to the other.
func pages(root fs.FS) (list []file, err error) {
	add := func(dir string, wanted func(name string) bool) error {
		return fs.WalkDir(root, dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !wanted(name) {
				return err
			}
			text, err := fs.ReadFile(root, name)
			list = append(list, file{name, 0o644, text})
			return err
		})
	}
	err = add("docs", func(name string) bool {
		return path.Ext(name) == ".md" && !strings.HasPrefix(name, "docs/results/")
	})
	for _, e := range examples {
		err = errors.Join(err, add("deploy/"+e, func(name string) bool {
			return path.Ext(name) != ".go" && !strings.HasPrefix(path.Base(name), "go.")
		}))
	}
	return list, err
}
