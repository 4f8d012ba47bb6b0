package rules

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// names are what an expression can use, and functions are our own functions. docs/rules.md explains
// them.
const (
	names     = "method, path, host, route, ip, address, user, class, hour, weekday"
	functions = `header("Name"), attr("name"), join(a, b, ...), hash(a), inside("10.0.0.0/8", ...)`
)

// builtins are the useful functions of the language itself. None of them can produce much output
// from little input.
var builtins = []string{
	"all", "any", "none", "len", "lower", "upper", "trim", "trimPrefix", "trimSuffix", "hasPrefix", "hasSuffix",
	"split", "first", "last", "int", "string",
	"indexOf", "abs", "max", "min",
}

// memoryBudget bounds what one evaluation may collect, in elements.
const memoryBudget = 10_000

// env is what an expression sees in the language's own interpreter.
type env struct {
	Method  string                 `expr:"method"`
	Path    string                 `expr:"path"`
	Host    string                 `expr:"host"`
	Route   string                 `expr:"route"`
	IP      string                 `expr:"ip"`
	Address string                 `expr:"address"`
	User    string                 `expr:"user"`
	Class   string                 `expr:"class"`
	Hour    int                    `expr:"hour"`
	Weekday string                 `expr:"weekday"`
	Header  func(string) string    `expr:"header"`
	Attr    func(string) string    `expr:"attr"`
	Inside  func(...string) bool   `expr:"inside"`
	Join    func(...string) string `expr:"join"`
	Hash    func(string) string    `expr:"hash"`
}

// expression is a compiled expression of type T, bool or string: a common one as a Go func, which
// does not allocate, and any other as a program for the language's own interpreter.
type expression[T any] struct {
	direct func(*request) T
	code   *vm.Program
	timed  bool // it uses hour or weekday
}

// compileCondition compiles an expression that is true or false.
func compileCondition(source string) (*expression[bool], error) {
	return compileAs(source, reflect.Bool, directBool)
}

// compileText compiles an expression that yields a text.
func compileText(source string) (*expression[string], error) {
	return compileAs(source, reflect.String, directString)
}

func compileAs[T any](source string, kind reflect.Kind, direct func(ast.Node) func(*request) T) (*expression[T],
	error,
) {
	code, timed, err := compileExpr(source, kind, false)
	if err != nil {
		return nil, err
	}
	x := &expression[T]{timed: timed}
	if x.direct = direct(code.Node()); x.direct == nil {
		x.code, _, err = compileExpr(source, kind, true)
	}
	return x, err
}

// compileExpr checks and compiles an expression.
func compileExpr(source string, kind reflect.Kind, optimize bool) (code *vm.Program, timed bool, err error) {
	if len(source) > MaxSource {
		return nil, false, fmt.Errorf("the expression has %d bytes, more than %d", len(source), MaxSource)
	}
	opts := []expr.Option{
		expr.Env(&env{}), expr.MaxNodes(MaxNodes), expr.AsKind(kind), expr.DisableAllBuiltins(),
		expr.Optimize(optimize),
	}
	for _, b := range builtins {
		opts = append(opts, expr.EnableBuiltin(b))
	}
	code, err = expr.Compile(source, opts...)
	if err != nil {
		return nil, false, explain(err)
	}
	if optimize {
		return code, false, nil // already checked, without optimization
	}
	// Not with expr.Patch: with a patcher, the language does not check the arguments of funcs, and
	// header(X) would not be a mistake.
	c := &checker{}
	node := code.Node()
	ast.Walk(&node, c)
	return code, c.timed, c.err
}

// explain says what is wrong with an expression without showing its text, which may contain a
// secret.
func explain(err error) error {
	e, ok := errors.AsType[*file.Error](err)
	if !ok {
		if expected, _, ok := strings.Cut(err.Error(), ", but got func("); ok {
			return errors.New(expected + ", but got the name of a function: call it, or put a string in quotes")
		}
		return err
	}
	text := e.Message
	if strings.Contains(text, "unknown name") {
		text += "; known names are " + names + " and the functions " + functions + "; put strings in quotes"
	}
	if strings.Contains(text, `Operator("=")`) {
		text += "; compare with =="
	}
	return fmt.Errorf("line %d, column %d: %s", e.Line, e.Column+1, text)
}

// checker refuses what the language allows but rules do not.
type checker struct {
	err   error
	timed bool
}

// Visit implements [ast.Visitor]. Children come before their parents.
func (c *checker) Visit(n *ast.Node) {
	if err := c.check(*n); c.err == nil && err != nil {
		at := (*n).Location()
		c.err = fmt.Errorf("at byte %d: %w", at.From+1, err)
	}
}

func (c *checker) check(node ast.Node) error {
	switch n := node.(type) {
	case *ast.IdentifierNode:
		c.timed = c.timed || n.Value == "hour" || n.Value == "weekday"
	case *ast.BinaryNode:
		return checkBinary(n)
	case *ast.VariableDeclaratorNode, *ast.SequenceNode:
		return errors.New("let and sequences of expressions are not allowed in rules")
	case *ast.PredicateNode:
		if has(n.Node, isLoop) {
			return errors.New("a loop within a loop is not allowed: a caller could make it slow")
		}
	case *ast.CallNode:
		if called(n) == "inside" {
			_, err := insideOf(n.Arguments)
			return err
		}
	}
	return nil
}

func checkBinary(n *ast.BinaryNode) error {
	switch n.Operator {
	case "matches":
		if _, ok := n.Right.(*ast.StringNode); !ok {
			return errors.New("the pattern of matches must be a literal: a pattern from a request could be anything")
		}
	case "+":
		if parts(n) > 1 {
			return errors.New("strings joined with + can be the same for different callers: use join(a, b)")
		}
	case "..":
		from, ok1 := n.Left.(*ast.IntegerNode)
		to, ok2 := n.Right.(*ast.IntegerNode)
		if !ok1 || !ok2 || to.Value-from.Value > memoryBudget {
			return errors.New("the ends of a range must be literals, and close to each other")
		}
	}
	return nil
}

// parts returns how many terms of a sum are not literals.
func parts(node ast.Node) int {
	switch n := node.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
		return 0
	case *ast.BinaryNode:
		if n.Operator == "+" {
			return parts(n.Left) + parts(n.Right)
		}
	}
	return 1
}

// finder looks for a node.
type finder struct {
	is    func(ast.Node) bool
	found bool
}

// Visit implements [ast.Visitor].
func (f *finder) Visit(n *ast.Node) { f.found = f.found || f.is(*n) }

// has reports whether an expression has a node of a kind.
func has(node ast.Node, is func(ast.Node) bool) bool {
	f := &finder{is: is}
	ast.Walk(&node, f)
	return f.found
}

// isLoop reports whether a node iterates over a list.
func isLoop(n ast.Node) bool {
	_, ok := n.(*ast.PredicateNode)
	return ok
}

// isJoin reports whether a node is the function join, which has one buffer.
func isJoin(n ast.Node) bool {
	id, ok := n.(*ast.IdentifierNode)
	return ok && id.Value == "join"
}

// called returns the name of the called function.
func called(n *ast.CallNode) string {
	if id, ok := n.Callee.(*ast.IdentifierNode); ok {
		return id.Value
	}
	return ""
}

// value evaluates an expression. The error does not include the cause, which may show the value of
// an attribute.
func (x *expression[T]) value(m *Matches) (v T, err error) {
	if x.direct != nil {
		return x.direct(&m.request), nil
	}
	m.fill()
	m.machine.MemoryBudget = memoryBudget
	got, err := m.machine.Run(x.code, &m.env)
	if err != nil {
		if e, ok := errors.AsType[*file.Error](err); ok {
			return v, fmt.Errorf("the expression failed on this request, at line %d, column %d", e.Line, e.Column+1)
		}
		return v, errors.New("the expression failed on this request")
	}
	v, ok := got.(T)
	if !ok {
		return v, errors.New("the expression yielded nothing on this request")
	}
	return v, nil
}

// weekdays are the values of weekday.
var weekdays = [...]string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// fill copies the request to the interpreter's environment, once.
func (m *Matches) fill() {
	if m.filled {
		return
	}
	m.filled = true
	q, e := &m.request, &m.env
	e.Method, e.Path, e.Host, e.Route, e.User, e.Class = q.method, q.path, q.host, q.Route, q.User, q.Class
	e.IP, e.Address = q.network(), q.address()
	e.Hour, e.Weekday = q.now.Hour(), weekdays[q.now.Weekday()]
	if e.Header == nil {
		e.Header, e.Attr, e.Join, e.Hash, e.Inside = q.headerOf, q.attr, Join, Hash, q.insideAny
	}
}
