package drawgate_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
)

// surface is what the package exports: names, and methods as "Type.Method".
type surface struct {
	names    map[string]token.Position
	mentions []string        // of packages that nobody outside can import
	returned map[string]bool // types in the signatures of exported functions
}

// readSurface reads the exported declarations of the package in a folder.
func readSurface(t *testing.T, folder string) *surface {
	t.Helper()
	s := &surface{names: map[string]token.Position{}, returned: map[string]bool{}}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		hidden := map[string]bool{}
		for _, imp := range f.Imports {
			if path := strings.Trim(imp.Path.Value, `"`); strings.Contains(path, "/internal/") {
				hidden[path[strings.LastIndex(path, "/")+1:]] = true
			}
		}
		s.read(f, fset, hidden)
	}
	return s
}

func (s *surface) read(f *ast.File, fset *token.FileSet, hidden map[string]bool) {
	check := func(what string, nodes ...ast.Node) {
		for _, n := range nodes {
			ast.Inspect(n, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := sel.X.(*ast.Ident); ok && hidden[x.Name] {
						s.mentions = append(s.mentions, what+" mentions "+x.Name+"."+sel.Sel.Name)
					}
				}
				return true
			})
		}
	}
	add := func(name string, n ast.Node) { s.names[name] = fset.Position(n.Pos()) }
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d) + "." + name
			}
			if d.Name.IsExported() && ast.IsExported(name) {
				add(name, d)
				check(name, d.Type)
				ast.Inspect(d.Type, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						s.returned[id.Name] = true
					}
					return true
				})
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						add(spec.Name.Name, spec)
						check(spec.Name.Name, exportedPart(spec.Type)...)
					}
				case *ast.ValueSpec:
					for i, n := range spec.Names {
						if !n.IsExported() {
							continue
						}
						add(n.Name, n)
						if spec.Type != nil {
							check(n.Name, spec.Type)
						}
						if i < len(spec.Values) {
							check(n.Name, spec.Values[i])
						}
					}
				}
			}
		}
	}
}

func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	return t.(*ast.Ident).Name
}

// exportedPart returns what users see of a type: all of it, but of a struct only exported and
// embedded fields.
func exportedPart(t ast.Expr) (nodes []ast.Node) {
	st, ok := t.(*ast.StructType)
	if !ok {
		return []ast.Node{t}
	}
	for _, f := range st.Fields.List {
		if len(f.Names) == 0 || f.Names[0].IsExported() {
			nodes = append(nodes, f.Type)
		}
	}
	return nodes
}

// TestSurfaceNamesNoInternalType: what the package exports can be named by whoever imports it.
func TestSurfaceNamesNoInternalType(t *testing.T) {
	t.Parallel()
	for _, m := range readSurface(t, ".").mentions {
		t.Error(m)
	}
}

// TestSurfaceIsUsed: every exported name of the library and of its contract with stores has an
// example or a caller outside the package, or is what such a function returns, so that there is
// none which nobody needs. Packages are type-checked: a method is not used because another type has
// one of that name.
func TestSurfaceIsUsed(t *testing.T) {
	needs.NoRace(t) // one goroutine
	if testing.Short() {
		t.Skip("compiles the whole module")
	}
	t.Parallel()
	// the standard library calls them
	implicit := map[string]bool{"Error": true, "Unwrap": true, "Is": true, "String": true}
	for folder, path := range map[string]string{".": module, "store": module + "/store"} {
		s, used := readSurface(t, folder), usedOutside(t, path)
		for name, at := range s.names {
			short := name[strings.LastIndex(name, ".")+1:]
			if !used[name] && !implicit[short] && !s.returned[name] {
				t.Errorf("%s: nobody outside uses %s, and no example shows it", at, name)
			}
		}
	}
}

// usedOutside returns which names of a package its examples, the other packages of the module and
// examples/boltstore use.
func usedOutside(t *testing.T, path string) map[string]bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export",
		"-json=ImportPath,Export,Dir,GoFiles", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	type listed struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}
	var pkgs []listed
	exports := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.ImportPath == path {
			p.GoFiles, _ = filepath.Glob(filepath.Join(p.Dir, "example_*_test.go"))
		}
		if p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/") {
			pkgs = append(pkgs, p)
		}
	}
	fset, used := token.NewFileSet(), map[string]bool{}
	from := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range pkgs {
		conf := types.Config{Importer: from}
		if p.ImportPath == path {
			conf.Error = func(error) {} // examples stand among tests that are not read here
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, filepath.Base(name)), nil,
				parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := types.Info{Uses: map[*ast.Ident]types.Object{}}
		if _, err := conf.Check(p.ImportPath+"_outside", fset, files, &info); err != nil && conf.Error == nil {
			t.Fatal(err)
		}
		for _, obj := range info.Uses {
			if obj.Pkg() != nil && obj.Pkg().Path() == path {
				used[nameOf(obj)] = true
			}
		}
	}
	return used
}

// nameOf returns an object's name, of a method with its type's.
func nameOf(obj types.Object) string {
	f, ok := obj.(*types.Func)
	if !ok || f.Signature().Recv() == nil {
		return obj.Name()
	}
	t := f.Signature().Recv().Type()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); ok {
		return n.Obj().Name() + "." + obj.Name()
	}
	return obj.Name()
}
