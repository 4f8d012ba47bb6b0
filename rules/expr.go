package rules

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// names are what an expression may ask for; functions are the ones of its own that it may call. docs/rules.md explains them.
const (
	names     = "method, path, host, route, ip, address, user, class, hour, weekday"
	functions = `header("Name"), attr("name"), join(a, b, ...), inside("10.0.0.0/8", ...)`
)

// builtins are the language's own functions that are of use here. None can make much of little.
var builtins = []string{
	"all", "any", "none", "len", "lower", "upper", "trim", "trimPrefix", "trimSuffix", "hasPrefix", "hasSuffix", "split", "first", "last", "int", "string",
	"indexOf", "abs", "max", "min",
}

// memoryBudget bounds what one evaluation may collect, in elements.
const memoryBudget = 10_000

// env is what an expression sees.
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
}

// program is an expression made ready.
type program struct {
	code *vm.Program
}

// compileExpr checks an expression, whose value must be of this kind: reflect.Bool or reflect.String.
func compileExpr(source string, kind reflect.Kind) (*program, error) {
	if len(source) > MaxSource {
		return nil, fmt.Errorf("the expression has %d bytes, more than %d", len(source), MaxSource)
	}
	opts := []expr.Option{expr.Env(&env{}), expr.MaxNodes(MaxNodes), expr.AsKind(kind), expr.DisableAllBuiltins()}
	for _, b := range builtins {
		opts = append(opts, expr.EnableBuiltin(b))
	}
	check := &checker{}
	opts = append(opts, expr.Patch(check))
	code, err := expr.Compile(source, opts...)
	if err == nil {
		err = check.err
	}
	if err != nil {
		return nil, explain(err)
	}
	return &program{code}, nil
}

// explain says what is wrong with an expression without showing its text, in which there may be a secret.
func explain(err error) error {
	var e *file.Error
	if !errors.As(err, &e) {
		return err
	}
	text := e.Message
	if strings.Contains(text, "unknown name") {
		text += "; there are " + names + " and the functions " + functions
	}
	return fmt.Errorf("line %d, column %d: %s", e.Line, e.Column+1, text)
}

// checker refuses what the language allows and rules do not.
type checker struct{ err error }

// Visit implements [ast.Visitor].
func (c *checker) Visit(n *ast.Node) {
	b, ok := (*n).(*ast.BinaryNode)
	if !ok || c.err != nil || b.Operator != "matches" {
		return
	}
	if _, ok := b.Right.(*ast.StringNode); !ok {
		c.err = errors.New("the pattern of matches must be written out: a pattern from a request may be any")
	}
}

// run evaluates the expression. What went wrong is not told: it may show the value of an attribute.
func (p *program) run(machine *vm.VM, e *env) (any, error) {
	machine.MemoryBudget = memoryBudget
	v, err := machine.Run(p.code, e)
	if err != nil {
		return nil, failed(err)
	}
	return v, nil
}

func failed(err error) error {
	var e *file.Error
	if !errors.As(err, &e) {
		return errors.New("the expression failed on this request")
	}
	return fmt.Errorf("the expression failed on this request, at line %d, column %d", e.Line, e.Column+1)
}

// weekdays are the values of weekday.
var weekdays = [...]string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// fill sets what expressions see.
func (e *env) fill(a *Attributes, now time.Time) {
	now = now.UTC()
	e.Method, e.Path, e.Host, e.Route, e.User, e.Class = a.Method, a.Path, a.Host, a.Route, a.User, a.Class
	e.IP, e.Address = network(a.IP), address(a.IP)
	e.Hour, e.Weekday = now.Hour(), weekdays[now.Weekday()]
}
