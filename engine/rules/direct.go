package rules

import (
	"errors"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// This file turns common expressions into Go funcs, because the language's own interpreter
// allocates for each text that it looks at. A nil func means that the interpreter must be used.
// FuzzExpr checks that both give the same answers.

// directString returns a func for an expression that yields a text.
func directString(node ast.Node) func(*request) string {
	switch n := node.(type) {
	case *ast.StringNode:
		text := n.Value
		return func(*request) string { return text }
	case *ast.IdentifierNode:
		return attribute(n.Value)
	case *ast.CallNode:
		return directCall(n)
	case *ast.ConditionalNode:
		cond, yes, no := directBool(n.Cond), directString(n.Exp1), directString(n.Exp2)
		if cond == nil || yes == nil || no == nil {
			return nil
		}
		return func(q *request) string {
			if cond(q) {
				return yes(q)
			}
			return no(q)
		}
	}
	return nil
}

// attribute returns the func for a name.
func attribute(name string) func(*request) string {
	switch name {
	case "method":
		return func(q *request) string { return q.method }
	case "path":
		return func(q *request) string { return q.path }
	case "host":
		return func(q *request) string { return q.host }
	case "route":
		return func(q *request) string { return q.Route }
	case "user":
		return func(q *request) string { return q.User }
	case "class":
		return func(q *request) string { return q.Class }
	case "ip":
		return (*request).network
	case "address":
		return (*request).address
	case "weekday":
		return func(q *request) string { return weekdays[q.now.Weekday()] }
	}
	return nil
}

func directCall(n *ast.CallNode) func(*request) string {
	name := called(n)
	if name == "join" {
		return directJoin(n.Arguments)
	}
	if len(n.Arguments) != 1 {
		return nil
	}
	if name == "hash" {
		return directHash(n.Arguments[0])
	}
	arg, ok := n.Arguments[0].(*ast.StringNode)
	if !ok {
		return nil
	}
	switch name {
	case "header":
		canonical := http.CanonicalHeaderKey(arg.Value)
		return func(q *request) string { return q.header(canonical) }
	case "attr":
		key := arg.Value
		return func(q *request) string { return q.Extra[key] }
	}
	return nil
}

func directHash(arg ast.Node) func(*request) string {
	secret := directString(arg)
	if secret == nil {
		return nil
	}
	return func(q *request) string { return Hash(secret(q)) }
}

func directJoin(args []ast.Node) func(*request) string {
	parts := make([]func(*request) string, len(args))
	for i, a := range args {
		if parts[i] = directString(a); parts[i] == nil || has(a, isJoin) {
			return nil
		}
	}
	return func(q *request) string {
		q.join = q.join[:0]
		for i, p := range parts {
			q.join = appendPart(q.join, i, p(q))
		}
		return string(q.join)
	}
}

// directInt returns a func for an expression that yields an integer.
func directInt(node ast.Node) func(*request) int {
	switch n := node.(type) {
	case *ast.IntegerNode:
		v := n.Value
		return func(*request) int { return v }
	case *ast.IdentifierNode:
		if n.Value == "hour" {
			return func(q *request) int { return q.now.Hour() }
		}
	}
	return nil
}

// directBool returns a func for an expression that is true or false.
func directBool(node ast.Node) func(*request) bool {
	switch n := node.(type) {
	case *ast.BoolNode:
		v := n.Value
		return func(*request) bool { return v }
	case *ast.UnaryNode:
		if f := directBool(n.Node); f != nil && (n.Operator == "!" || n.Operator == "not") {
			return func(q *request) bool { return !f(q) }
		}
	case *ast.BinaryNode:
		return directBinary(n)
	case *ast.CallNode:
		if called(n) == "inside" {
			nets, err := insideOf(n.Arguments)
			if err == nil {
				return func(q *request) bool { return contains(nets, q.ip) }
			}
		}
	}
	return nil
}

func directBinary(n *ast.BinaryNode) func(*request) bool {
	if l, r := directBool(n.Left), directBool(n.Right); l != nil && r != nil {
		return logic(n.Operator, l, r)
	}
	if l := directString(n.Left); l != nil {
		if n.Operator == "in" {
			return textIn(l, n.Right)
		}
		if r := directString(n.Right); r != nil {
			return compareTexts(n, l, r)
		}
	}
	if l := directInt(n.Left); l != nil {
		if n.Operator == "in" {
			return numberIn(l, n.Right)
		}
		if r := directInt(n.Right); r != nil {
			return compareNumbers(n.Operator, l, r)
		}
	}
	return nil
}

func logic(operator string, l, r func(*request) bool) func(*request) bool {
	switch operator {
	case "and", "&&":
		return func(q *request) bool { return l(q) && r(q) }
	case "or", "||":
		return func(q *request) bool { return l(q) || r(q) }
	case "==":
		return func(q *request) bool { return l(q) == r(q) }
	case "!=":
		return func(q *request) bool { return l(q) != r(q) }
	}
	return nil
}

func compareTexts(n *ast.BinaryNode, l, r func(*request) string) func(*request) bool {
	switch n.Operator {
	case "==":
		return func(q *request) bool { return l(q) == r(q) }
	case "!=":
		return func(q *request) bool { return l(q) != r(q) }
	case "startsWith":
		return func(q *request) bool { return strings.HasPrefix(l(q), r(q)) }
	case "endsWith":
		return func(q *request) bool { return strings.HasSuffix(l(q), r(q)) }
	case "contains":
		return func(q *request) bool { return strings.Contains(l(q), r(q)) }
	case "matches":
		source, ok := n.Right.(*ast.StringNode)
		if !ok {
			return nil
		}
		if re, err := regexp.Compile(source.Value); err == nil {
			return func(q *request) bool { return re.MatchString(l(q)) }
		}
	}
	return nil
}

func compareNumbers(operator string, l, r func(*request) int) func(*request) bool {
	switch operator {
	case "==":
		return func(q *request) bool { return l(q) == r(q) }
	case "!=":
		return func(q *request) bool { return l(q) != r(q) }
	case "<":
		return func(q *request) bool { return l(q) < r(q) }
	case "<=":
		return func(q *request) bool { return l(q) <= r(q) }
	case ">":
		return func(q *request) bool { return l(q) > r(q) }
	case ">=":
		return func(q *request) bool { return l(q) >= r(q) }
	}
	return nil
}

// textIn returns a func that looks up a text in a literal list.
func textIn(l func(*request) string, list ast.Node) func(*request) bool {
	array, ok := list.(*ast.ArrayNode)
	if !ok {
		return nil
	}
	texts := make(map[string]bool, len(array.Nodes))
	for _, n := range array.Nodes {
		s, ok := n.(*ast.StringNode)
		if !ok {
			return nil
		}
		texts[s.Value] = true
	}
	return func(q *request) bool { return texts[l(q)] }
}

func numberIn(l func(*request) int, list ast.Node) func(*request) bool {
	switch n := list.(type) {
	case *ast.BinaryNode:
		from, to := directInt(n.Left), directInt(n.Right)
		if n.Operator == ".." && from != nil && to != nil {
			return func(q *request) bool { return l(q) >= from(q) && l(q) <= to(q) }
		}
	case *ast.ArrayNode:
		var numbers []int
		for _, n := range n.Nodes {
			i, ok := n.(*ast.IntegerNode)
			if !ok {
				return nil
			}
			numbers = append(numbers, i.Value)
		}
		return func(q *request) bool { return slices.Contains(numbers, l(q)) }
	}
	return nil
}

// The interpreter calls headerOf, attr and insideAny.
func (q *request) headerOf(name string) string { return q.header(http.CanonicalHeaderKey(name)) }
func (q *request) attr(name string) string     { return q.Extra[name] }

func (q *request) insideAny(list ...string) bool {
	for _, s := range list {
		if p, err := parseNetwork(s); err == nil && p.Contains(q.ip) {
			return true
		}
	}
	return false
}

var errNetworks = errors.New(`inside needs literal networks, such as inside("10.0.0.0/8")`)

// insideOf reads the arguments of inside.
func insideOf(args []ast.Node) (nets []netip.Prefix, err error) {
	for _, a := range args {
		s, ok := a.(*ast.StringNode)
		if !ok {
			return nil, errNetworks
		}
		p, err := parseNetwork(s.Value)
		if err != nil {
			return nil, err
		}
		nets = append(nets, p)
	}
	if len(nets) == 0 {
		return nil, errNetworks
	}
	return nets, nil
}

func contains(nets []netip.Prefix, ip netip.Addr) bool {
	for i := range nets {
		if nets[i].Contains(ip) {
			return true
		}
	}
	return false
}
