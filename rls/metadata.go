package rls

import (
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"google.golang.org/protobuf/types/known/structpb"
)

// metadata reads a descriptor's metadata for the proxy: any mapping.
func (b *builder) metadata(e entry) *structpb.Struct {
	n := b.resolve(e.value, e.depth)
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	case *ast.NullNode, nil:
		return nil
	default:
		b.problem(placeOf(n), "metadata must be a mapping, not %s", describe(n))
		return nil
	}
	return b.value(e.value, e.depth).GetStructValue()
}

// value reads any value.
func (b *builder) value(n ast.Node, depth int) *structpb.Value {
	at := placeOf(n)
	switch n := b.resolve(n, depth).(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for _, e := range b.entries(n, "metadata", depth+1) {
			s.Fields[e.key] = b.value(e.value, e.depth)
		}
		return structpb.NewStructValue(s)
	case *ast.SequenceNode:
		l := &structpb.ListValue{}
		for _, v := range n.Values {
			l.Values = append(l.Values, b.value(v, depth+1))
		}
		return structpb.NewListValue(l)
	case *ast.StringNode:
		return structpb.NewStringValue(n.Value)
	case *ast.LiteralNode:
		return structpb.NewStringValue(n.Value.Value)
	case *ast.BoolNode:
		return structpb.NewBoolValue(n.Value)
	case *ast.IntegerNode, *ast.FloatNode:
		f, err := strconv.ParseFloat(fmt.Sprint(n.(ast.ScalarNode).GetValue()), 64)
		if err != nil {
			b.problem(at, "metadata: %s is not a number", n.GetToken().Value)
		}
		return structpb.NewNumberValue(f)
	case *ast.NullNode, nil:
	default:
		b.problem(at, "metadata cannot hold %s", describe(n))
	}
	return structpb.NewNullValue()
}
