// Command concurrent lists the packages in which goroutines meet: those whose code or tests start
// one, by themselves or through a server or a timer. In the others the race detector has nothing to
// find.
//
//	concurrent [-not] [packages]
//
// With -not it lists the others. Packages are those of "go list"; ./... is the default.
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
)

func main() {
	not := flag.Bool("not", false, "list the packages in which no goroutines meet")
	flag.Parse()
	if err := run(os.Stdout, ".", *not, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "concurrent:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, dir string, not bool, patterns []string) error {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	list, err := packages(dir, patterns)
	if err != nil {
		return err
	}
	for _, p := range list {
		starts, err := p.startsGoroutines()
		if err != nil {
			return err
		}
		if starts != not {
			fmt.Fprintln(w, p.ImportPath)
		}
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

// startsGoroutines reports whether one of the package's files does.
func (p pkg) startsGoroutines() (bool, error) {
	for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		if fileStarts(f) {
			return true, nil
		}
	}
	return false, nil
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
