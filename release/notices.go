package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// module is a module whose packages are linked into the program.
type module struct {
	path, version string
	sum           string          // as go.sum has it; "" for Go's own library
	targets       map[target]bool // whose program has it
	licences      []string        // as SPDX calls them
	texts         []licenceText
}

// goLibrary is the module of Go's own library.
const goLibrary = "std"

func (m *module) String() string {
	if m.path == goLibrary {
		return "Go's library " + m.version
	}
	return m.path + " " + m.version
}

// licenceText is a file that has to be passed on.
type licenceText struct{ name, text string }

// listed is a package as "go list -json" describes it.
type listed struct {
	Dir        string
	ImportPath string
	Standard   bool
	Module     *struct {
		Path, Version, Dir, Sum string
		Main                    bool
	}
}

// findModules finds the modules of all programs, and their licences. It fails if one of them has no
// licence that is known, or if Go's list is not what the program itself says.
func (r *release) findModules(ctx context.Context) error {
	found := map[string]*module{}
	for _, t := range r.targets {
		out, err := output(r.golang(ctx, t, "list", "-deps", "-trimpath", "-tags", r.tags,
			"-json=Dir,ImportPath,Standard,Module", "./cmd/drawgate"))
		if err != nil {
			return err
		}
		info, err := buildinfo.ReadFile(r.program(t))
		if err != nil {
			return err
		}
		d := json.NewDecoder(strings.NewReader(out))
		for {
			var p listed
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			if err := r.note(found, t, &p, info.GoVersion); err != nil {
				return err
			}
		}
		for _, dep := range info.Deps {
			m := found[dep.Path]
			if dep.Replace != nil || m == nil || m.version != dep.Version || !m.targets[t] {
				return fmt.Errorf("%s contains %s %s, which Go does not list", t, dep.Path, dep.Version)
			}
			m.sum = dep.Sum
		}
	}
	for _, m := range found {
		if err := m.classify(); err != nil {
			return err
		}
		r.modules = append(r.modules, m)
	}
	slices.SortFunc(r.modules, func(a, b *module) int { return cmp.Compare(a.path, b.path) })
	return nil
}

// note adds a package's module, and the licences in its folders.
func (r *release) note(found map[string]*module, t target, p *listed, goVersion string) error {
	var name, version, top string
	switch {
	case p.Standard:
		name, version, top = goLibrary, strings.TrimPrefix(goVersion, "go"), goRoot(p)
	case p.Module == nil:
		return fmt.Errorf("%s belongs to no module", p.ImportPath)
	case p.Module.Main:
		return nil
	default:
		name, version, top = p.Module.Path, p.Module.Version, p.Module.Dir
	}
	m := found[name]
	if m == nil {
		m = &module{path: name, version: version, targets: map[target]bool{}}
		found[name] = m
	}
	m.targets[t] = true
	for dir := p.Dir; dir == top || strings.HasPrefix(dir, top+string(filepath.Separator)); dir = filepath.Dir(dir) {
		if err := m.read(dir, top); err != nil {
			return err
		}
	}
	return nil
}

// goRoot returns the folder of Go, from one of a package of its library.
func goRoot(p *listed) string {
	return strings.TrimSuffix(filepath.ToSlash(p.Dir), "/src/"+p.ImportPath)
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(un)?licen[cs]e|^copying|^copyright|^notice|^patents`)
	sourceFile  = regexp.MustCompile(`\.(go|s|c|h|json|tmpl|py|sh)$`)
	grant       = regexp.MustCompile(`(?i)^(un)?licen[cs]e|^copying`) // not what is only passed on with it
)

// boring is the licence of compiled parts of BoringSSL. They are linked only by builds with
// GOEXPERIMENT=boringcrypto, of which golang lets nothing through.
const boring = "src/crypto/internal/boring/LICENSE"

// read reads the licences in a folder of the module.
func (m *module) read(dir, top string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) || sourceFile.MatchString(e.Name()) {
			continue
		}
		name, err := filepath.Rel(top, filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		read := func(t licenceText) bool { return t.name == name }
		if m.path == goLibrary && name == boring || slices.ContainsFunc(m.texts, read) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.texts = append(m.texts, licenceText{name, strings.ReplaceAll(string(text), "\r\n", "\n")})
	}
	return nil
}

// permissive are the licences that the program may contain: they ask for no more than to be passed
// on.
var permissive = []string{
	"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unlicense", "blessing", "CC0-1.0",
}

// reviewed are licences that a person has read, because their texts are not those of one licence:
// which ones they are. They are passed on like all others.
var reviewed = map[string][]string{
	// These name what a module contains or uses in its tests, each with its licence. What is linked
	// of it has one of these, or is a module of its own in our list.
	"modernc.org/libc/LICENSE-3RD-PARTY.md":   {"BSD-3-Clause", "MIT"},
	"modernc.org/sqlite/LICENSE-3RD-PARTY.md": {"BSD-3-Clause", "MIT"},
	"modernc.org/sqlite/LICENSE-SQLITE":       {"blessing"},
	"modernc.org/memory/LICENSE-LOGO":         nil, // of a picture, which is not linked
}

// classify finds out which licences these are.
func (m *module) classify() error {
	slices.SortFunc(m.texts, func(a, b licenceText) int { return cmp.Compare(a.name, b.name) })
	for _, t := range m.texts {
		if !grant.MatchString(path.Base(t.name)) {
			continue
		}
		if ids, ok := reviewed[m.path+"/"+t.name]; ok {
			m.add(ids...)
			continue
		}
		c := licensecheck.Scan([]byte(t.text))
		if len(c.Match) == 0 || c.Percent < 60 {
			return fmt.Errorf("%s: it is not known what licence %s is (%.0f %% of it are)", m, t.name, c.Percent)
		}
		for _, match := range c.Match {
			if !slices.Contains(permissive, match.ID) {
				return fmt.Errorf("%s: %s is %s, which is not in the list of licences that the program may contain", m, t.name, match.ID)
			}
			m.add(match.ID)
		}
	}
	if len(m.licences) == 0 {
		return fmt.Errorf("%s has no licence", m)
	}
	slices.Sort(m.licences)
	return nil
}

func (m *module) add(ids ...string) {
	for _, id := range ids {
		if !slices.Contains(m.licences, id) {
			m.licences = append(m.licences, id)
		}
	}
}

// notices returns the licences of all modules in full: each text once, with the modules that it is
// of.
func notices(version string, modules []*module) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "Drawgate %s is under the Apache License, version 2.0. Its program contains the modules below.\n\n", version)
	var order []string
	of := map[string][]string{}
	for _, m := range modules {
		fmt.Fprintf(&b, "%s: %s\n", m, strings.Join(m.licences, ", "))
		for _, t := range m.texts {
			text := strings.Trim(t.text, "\n")
			if of[text] == nil {
				order = append(order, text)
			}
			of[text] = append(of[text], fmt.Sprintf("%s (%s)", m, t.name))
		}
	}
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(of[text], "\n"), text)
	}
	return []byte(b.String())
}
