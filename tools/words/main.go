// Command words checks that the code keeps to plain words and to narrow comments. It fails on
// identifiers and file names that were retired, on comment lines wider than 100 columns, on code
// wider than 120 unless a text is in the way, and on commit subjects longer than 70 characters.
//
//	words [directory of the repository]
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxColumns = 100
	maxCode    = 120
	tabWidth   = 4
	maxSubject = 70
	// firstCommit is the last one before subjects were bounded, or in which one was not noticed.
	firstCommit = "16698eb0"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	found, err := check(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(2)
	}
	for _, f := range found {
		fmt.Println(f)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

// check returns what is wrong in the repository at root, one line each.
func check(root string) (found []string, err error) {
	files, err := sources(root)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if errors.Is(err, os.ErrNotExist) {
			continue // it is deleted, but not yet in a commit
		}
		if err != nil {
			return nil, err
		}
		found = append(found, checkFile(file, text)...)
	}
	subjects, err := git(root, "log", "--format=%h %s", firstCommit+"..HEAD")
	if err != nil {
		return found, nil // not a repository, or without that part of its history
	}
	return append(found, checkSubjects(subjects)...), nil
}

// sources lists the Go and Lua files under root, with slashes.
func sources(root string) ([]string, error) {
	if list, err := git(root, "ls-files", "--cached", "--others", "--exclude-standard", "*.go", "*.lua"); err == nil {
		return list, nil
	}
	var files []string
	err := filepath.WalkDir(root, func(file string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if ext := path.Ext(file); ext == ".go" || ext == ".lua" {
			file, err = filepath.Rel(root, file)
			files = append(files, filepath.ToSlash(file))
		}
		return err
	})
	return files, err
}

// git returns the lines that a git command prints.
func git(dir string, args ...string) ([]string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

// checkFile checks one file. name is its path in the repository.
func checkFile(name string, text []byte) (found []string) {
	dir, base := path.Split(name)
	if slices.Contains(retiredFiles[strings.TrimSuffix(dir, "/")], base) {
		found = append(found, name+": this file name was retired")
	}
	if path.Ext(name) == ".go" {
		found = append(found, checkIdentifiers(name, text)...)
		found = append(found, checkCode(name, text)...)
	}
	return append(found, checkColumns(name, text)...)
}

// checkIdentifiers finds declarations of retired identifiers.
func checkIdentifiers(name string, text []byte) (found []string) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	dir := strings.TrimSuffix(path.Dir(name), "/")
	for _, id := range declared(f) {
		if to, ok := replacement(dir, id.Name); ok {
			found = append(found, fmt.Sprintf("%s: the name %s was retired; use %s", files.Position(id.Pos()), id.Name,
				to))
		}
	}
	return found
}

// replacement returns the names in place of a retired one. Names are retired with and without a
// capital.
func replacement(dir, id string) (string, bool) {
	first, size := utf8.DecodeRuneInString(id)
	key := string(unicode.ToLower(first)) + id[size:]
	if to, ok := retired[""][key]; ok {
		return to, true
	}
	to, ok := retired[dir][key]
	return to, ok
}

// declared returns the names that a file declares. Names that it only uses may be another's.
func declared(f *ast.File) (ids []*ast.Ident) {
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok {
			ids = append(ids, id)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			ids = append(ids, n.Name)
		case *ast.TypeSpec:
			ids = append(ids, n.Name)
		case *ast.ValueSpec:
			ids = append(ids, n.Names...)
		case *ast.Field:
			ids = append(ids, n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					add(e)
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				add(n.Key)
				add(n.Value)
			}
		}
		return true
	})
	return ids
}

// checkColumns finds comment lines that are too wide: lines of nothing but a comment. Preformatted
// text, the expected output of examples, directives and long words such as URLs may be wider.
// checkCode finds lines of code that are too wide though they have no long text.
func checkCode(name string, text []byte) (found []string) {
	const long = 30
	free := map[int]bool{} // lines with a text that is long, and those with a comment for a tool
	fset := token.NewFileSet()
	file := fset.AddFile(name, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for pos, tok, lit := s.Scan(); tok != token.EOF; pos, tok, lit = s.Scan() {
		line := file.Line(pos)
		if tok == token.STRING && len(lit) > long || tok == token.COMMENT && strings.HasPrefix(lit, "//nolint") {
			for i := range 1 + strings.Count(lit, "\n") {
				free[line+i] = true
			}
		}
		if tok == token.COMMENT {
			free[line] = free[line] || file.Offset(pos) == 0 ||
				len(bytes.TrimSpace(lineTo(text, file.Offset(pos)))) == 0
		}
	}
	for i, line := range bytes.Split(text, []byte{'\n'}) {
		indent := len(line) - len(bytes.TrimLeft(line, "\t"))
		if width := utf8.RuneCount(line) + (tabWidth-1)*indent; width > maxCode && !free[i+1] {
			found = append(found, fmt.Sprintf("%s:%d: code of %d columns, more than %d", name, i+1, width, maxCode))
		}
	}
	return found
}

// lineTo returns what stands before an offset on its line.
func lineTo(text []byte, offset int) []byte {
	return text[bytes.LastIndexByte(text[:offset], '\n')+1 : offset]
}

func checkColumns(name string, text []byte) (found []string) {
	mark := "//"
	if path.Ext(name) == ".lua" {
		mark = "--"
	}
	output := false
	for i, line := range bytes.Split(text, []byte{'\n'}) {
		indent := len(line) - len(bytes.TrimLeft(line, "\t "))
		comment, ok := strings.CutPrefix(string(line[indent:]), mark)
		if !ok {
			output = false
			continue
		}
		if strings.HasPrefix(comment, " Output:") || strings.HasPrefix(comment, " Unordered output:") {
			output = true
		}
		free := output || strings.HasPrefix(comment, "\t") || comment != "" && comment[0] != ' ' ||
			!strings.Contains(strings.TrimSpace(comment), " ") ||
			strings.Contains(comment, "://")
		width := utf8.RuneCount(line) + (tabWidth-1)*bytes.Count(line[:indent], []byte{'\t'})
		if width > maxColumns && !free {
			found = append(found, fmt.Sprintf("%s:%d: a comment of %d columns, more than %d", name, i+1, width,
				maxColumns))
		}
	}
	return found
}

// checkSubjects finds commit subjects that are too long. Each line is a hash and a subject.
func checkSubjects(lines []string) (found []string) {
	for _, l := range lines {
		hash, subject, _ := strings.Cut(l, " ")
		if n := utf8.RuneCountInString(subject); n > maxSubject {
			found = append(found, fmt.Sprintf("commit %s: a subject of %d characters, more than %d: %s", hash, n,
				maxSubject, subject))
		}
	}
	return found
}
