package pattern_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPatternsCompile compiles the expressions of the whole program, so that none fails at its
// first use.
func TestPatternsCompile(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if expr, ok := expression(n); ok {
				found++
				if _, err := regexp.Compile(expr); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d patterns found: %v", found, err)
	}
}

// expression returns the expression of a call of New, if it is a constant.
func expression(n ast.Node) (expr string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || types.ExprString(call.Fun) != "pattern.New" {
		return "", false
	}
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, types.ExprString(call.Args[0]))
	if err != nil { // tests of its package use those that are put together
		return "", false
	}
	return constant.StringVal(v.Value), true
}
