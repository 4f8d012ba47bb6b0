package aws_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// template is the template with values for its parameters. It knows as much of CloudFormation's
// functions as the template uses.
type template struct {
	t    *testing.T
	root map[string]any
	refs map[string]string // values of parameters, and of what AWS or other resources supply
}

// call is a function of CloudFormation with its argument, such as !Ref Table.
type call struct {
	name string
	arg  any
}

const path = "drawgate.yaml"

// load reads the template. params are values that differ from the defaults.
func load(t *testing.T, params map[string]string) *template {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseBytes(text, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &template{t: t, refs: map[string]string{
		"AWS::Region": "eu-central-1", "AWS::Partition": "aws", "AWS::AccountId": "123456789012", "Table": "drawgate",
		"Policy":    "arn:aws:iam::123456789012:policy/p",
		"Topic":     "arn:aws:sns:eu-central-1:123456789012:drawgate-alarms",
		"Table.Arn": "arn:aws:dynamodb:eu-central-1:123456789012:table/drawgate",
	}}
	p.root, _ = p.raw(f.Docs[0].Body).(map[string]any)
	for name, def := range p.section("Parameters") {
		p.refs[name] = fmt.Sprint(def.(map[string]any)["Default"])
	}
	maps.Copy(p.refs, params)
	return p
}

func (p *template) section(name string) map[string]any {
	m, ok := p.root[name].(map[string]any)
	if !ok {
		p.t.Fatalf("the template has no %s", name)
	}
	return m
}

// raw turns a node into maps, lists, texts and calls.
func (p *template) raw(n ast.Node) any {
	switch n := n.(type) {
	case *ast.MappingNode:
		m := map[string]any{}
		for _, v := range n.Values {
			m[p.text(v.Key)] = p.raw(v.Value)
		}
		return m
	case *ast.MappingValueNode:
		return map[string]any{p.text(n.Key): p.raw(n.Value)}
	case *ast.SequenceNode:
		list := []any{}
		for _, v := range n.Values {
			list = append(list, p.raw(v))
		}
		return list
	case *ast.TagNode:
		return call{strings.TrimPrefix(n.Start.Value, "!"), p.raw(n.Value)}
	}
	return p.text(n)
}

func (p *template) text(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.MappingKeyNode:
		return p.text(n.Value)
	}
	return n.GetToken().Value
}

// resources returns the resources that exist with these parameters, with all functions called.
func (p *template) resources() map[string]map[string]any {
	p.t.Helper()
	all := map[string]map[string]any{}
	for name, r := range p.section("Resources") {
		r := r.(map[string]any)
		if c, ok := r["Condition"].(string); !ok || p.holds(c) {
			all[name] = p.value(r).(map[string]any)
		}
	}
	return all
}

// none is AWS::NoValue: the property is left out.
type none struct{}

func (p *template) value(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for k, e := range v {
			if e := p.value(e); e != (none{}) {
				m[k] = e
			}
		}
		return m
	case []any:
		list := []any{}
		for _, e := range v {
			if e := p.value(e); e != (none{}) {
				list = append(list, e)
			}
		}
		return list
	case call:
		return p.call(v)
	}
	return v
}

func (p *template) call(c call) any {
	args, _ := c.arg.([]any)
	switch c.name {
	case "Ref", "GetAtt":
		if c.arg == "AWS::NoValue" {
			return none{}
		}
		v, ok := p.refs[c.arg.(string)]
		if !ok {
			p.t.Fatalf("the test does not know %s", c.arg)
		}
		return v
	case "Sub":
		text := c.arg.(string)
		for name, v := range p.refs {
			text = strings.ReplaceAll(text, "${"+name+"}", v)
		}
		return text
	case "If":
		if p.holds(args[0].(string)) {
			return p.value(args[1])
		}
		return p.value(args[2])
	case "Join":
		var texts []string
		for _, e := range p.value(args[1]).([]any) {
			texts = append(texts, e.(string))
		}
		return strings.Join(texts, args[0].(string))
	case "Split":
		list := []any{}
		for part := range strings.SplitSeq(p.value(args[1]).(string), args[0].(string)) {
			list = append(list, part)
		}
		return list
	case "FindInMap":
		mapping := p.section("Mappings")[args[0].(string)].(map[string]any)
		return mapping[p.value(args[1]).(string)].(map[string]any)[args[2].(string)]
	}
	p.t.Fatalf("the test does not know the function %s", c.name)
	return nil
}

// holds returns a condition.
func (p *template) holds(name string) bool { return p.condition(p.section("Conditions")[name]) }

func (p *template) condition(v any) bool {
	c := v.(call)
	args := c.arg.([]any)
	switch c.name {
	case "Not":
		return !p.condition(args[0])
	case "Equals":
		return p.value(args[0]) == p.value(args[1])
	}
	p.t.Fatalf("the test does not know the condition %s", c.name)
	return false
}
