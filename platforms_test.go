package drawgate_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
)

// TestNamesOnOtherSystems finds what makes most programs and tests not compile for another system:
// names of a file that is not part of the package there, and of package syscall or os that it does
// not have. "make platforms" compiles everything, which takes minutes.
func TestNamesOnOtherSystems(t *testing.T) {
	needs.NoRace(t) // it computes
	t.Parallel()
	for _, goos := range []string{"windows", "darwin"}[:needs.Rounds(1, 2, 2)] {
		t.Run(goos, func(t *testing.T) {
			t.Parallel()
			s := &system{ctx: build.Default, fset: token.NewFileSet(), std: map[string]*types.Package{}}
			s.ctx.GOOS, s.ctx.GOARCH, s.ctx.CgoEnabled = goos, "arm64", false
			checked := 0
			for _, dir := range packageFolders(t) {
				files, tests, ok := s.files(t, dir)
				if !ok {
					continue
				}
				checked++
				for _, list := range [][]string{files, tests} {
					for _, problem := range s.undefined(t, dir, list) {
						t.Error(problem)
					}
				}
			}
			if checked < 50 {
				t.Errorf("only %d packages were found", checked)
			}
		})
	}
}

// packageFolders returns the folders of this module.
func packageFolders(t *testing.T) (folders []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == "." {
			return err
		}
		_, other := os.Stat(filepath.Join(path, "go.mod"))
		if strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || other == nil {
			return filepath.SkipDir
		}
		folders = append(folders, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(folders, ".")
}

// system checks packages as they are on another system.
type system struct {
	ctx  build.Context
	fset *token.FileSet
	std  map[string]*types.Package
}

// files returns the files of a package with its own tests, and those of its tests from outside.
func (s *system) files(t *testing.T, dir string) (own, outside []string, ok bool) {
	t.Helper()
	p, err := s.ctx.ImportDir(dir, 0)
	if _, none := errors.AsType[*build.NoGoError](err); err != nil && !none {
		t.Fatal(err)
	}
	return append(p.GoFiles, p.TestGoFiles...), p.XTestGoFiles, len(p.GoFiles) > 0
}

// undefined returns what the files of a package name that is not there. Nothing is said of other
// packages' names, but of those of package syscall and os.
func (s *system) undefined(t *testing.T, dir string, names []string) (problems []string) {
	t.Helper()
	files, imported := s.parse(t, dir, names), map[string]bool{}
	for _, f := range files {
		for _, i := range f.Imports { // math/rand/v2 is called rand, and smithy-go smithy
			for _, part := range word.FindAllString(i.Path.Value, -1) {
				imported[part] = i.Name == nil || imported[part]
			}
		}
	}
	conf := types.Config{Importer: s, Error: func(err error) {
		e, ok := errors.AsType[types.Error](err)
		if name, undefined := strings.CutPrefix(e.Msg, "undefined: "); ok && undefined && !imported[name] {
			problems = append(problems, fmt.Sprintf("%s: %s", s.fset.Position(e.Pos), e.Msg))
		}
	}}
	_, _ = conf.Check(dir, s.fset, files, nil) // its errors were reported
	return problems
}

var word = regexp.MustCompile(`\w+`)

func (s *system) parse(t *testing.T, dir string, names []string) (files []*ast.File) {
	t.Helper()
	for _, name := range names {
		f, err := parser.ParseFile(s.fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// Import implements [types.Importer]. A package that it does not return has any name.
func (s *system) Import(path string) (*types.Package, error) {
	if path != "syscall" && path != "os" {
		return nil, errors.ErrUnsupported
	}
	if p := s.std[path]; p != nil {
		return p, nil
	}
	dir := filepath.Join(s.ctx.GOROOT, "src", path)
	p, err := s.ctx.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(s.fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	conf := types.Config{Importer: s, IgnoreFuncBodies: true, Error: func(error) {}}
	s.std[path], _ = conf.Check(path, s.fset, files, nil) // what it imports is not there
	return s.std[path], nil
}
