// Command concurrent lists the packages in which goroutines meet: those whose code or tests start
// one, by themselves or through a server or a timer. In the others the race detector has nothing to
// find. Nor has it in packages that have no code but tests: these run programs, which are compiled
// without it, and the code that they call has tests of its own.
//
//	concurrent [-not | -later] [packages]
//
// With -not it lists the others. With -later it prints the arguments of "go test" that run those
// tests of the first which leave themselves to a run without the race detector (needs.NoRace).
// Packages are those of "go list"; ./... is the default.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	not := flag.Bool("not", false, "list the packages in which no goroutines meet")
	later := flag.Bool("later", false, "print the arguments for the tests that the race detector leaves out")
	flag.Parse()
	if err := run(os.Stdout, ".", *not, *later, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "concurrent:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, dir string, not, later bool, patterns []string) error {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	list, err := packages(dir, patterns)
	if err != nil {
		return err
	}
	var tests, left []string
	for _, p := range list {
		own, err := p.files(p.GoFiles)
		if err != nil {
			return err
		}
		files, err := p.files(p.TestGoFiles, p.XTestGoFiles)
		if err != nil {
			return err
		}
		files = append(files, own...)
		switch starts := slices.ContainsFunc(own, hasCode) && slices.ContainsFunc(files, fileStarts); {
		case !later && starts != not:
			fmt.Fprintln(w, p.ImportPath)
		case later && starts:
			if names := leftOut(files); len(names) > 0 {
				tests, left = append(tests, names...), append(left, p.ImportPath)
			}
		}
	}
	if later && len(tests) > 0 {
		slices.Sort(tests)
		fmt.Fprintf(w, "-run ^(%s)$ %s\n", strings.Join(slices.Compact(tests), "|"), strings.Join(left, " "))
	}
	return nil
}

// pkg is a package as "go list -json" describes it.
type pkg struct {
	ImportPath, Dir                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

func packages(dir string, patterns []string) ([]pkg, error) {
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles"},
		patterns...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		}
		list = append(list, p)
	}
}

// files returns files of the package.
func (p pkg) files(lists ...[]string) ([]*ast.File, error) {
	var files []*ast.File
	for _, name := range slices.Concat(lists...) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// hasCode reports whether a file has a function.
func hasCode(f *ast.File) bool {
	return slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
		_, ok := d.(*ast.FuncDecl)
		return ok
	})
}

// servers are packages whose callers are called by goroutines of the package's.
var servers = []string{
	"net/http/httptest", "google.golang.org/grpc/test/bufconn",
	"github.com/rogpeppe/go-internal/testscript",
}

// starters are functions and methods that call another one in a goroutine of its own.
var starters = []string{"Go", "AfterFunc", "RunParallel", "Serve", "ServeHTTP", "ListenAndServe"}

func fileStarts(f *ast.File) bool {
	for _, i := range f.Imports {
		if path, err := strconv.Unquote(i.Path.Value); err == nil && slices.Contains(servers, path) {
			return true
		}
	}
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.SelectorExpr:
			found = found || slices.Contains(starters, n.Sel.Name)
		}
		return !found
	})
	return found
}

// leftOut returns the tests that call needs.NoRace. Nothing else may call it: testlog takes a test
// that was left out without being here for a skipped one.
func leftOut(files []*ast.File) []string {
	var tests []string
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			found := false
			ast.Inspect(fn, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					x, ok := s.X.(*ast.Ident)
					found = found || ok && x.Name == "needs" && s.Sel.Name == "NoRace"
				}
				return !found
			})
			if found {
				tests = append(tests, fn.Name.Name)
			}
		}
	}
	return tests
}
