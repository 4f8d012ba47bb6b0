package yamltext

import "github.com/goccy/go-yaml/ast"

// Document returns the root of the only document of a file, nil if there is nothing but comments.
// second is told of every further document.
func Document(file *ast.File, second func(at Span, message string)) (root ast.Node) {
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType:
		case root == nil:
			root = doc.Body
		default:
			second(Of(doc.Body), "only one document is allowed per file, this is the second")
		}
	}
	return root
}

// Pair is a key of a mapping and its value.
type Pair struct {
	At    Span   // of the key
	Key   string // if it is Plain
	Plain bool   // the key is a text, or stands for one
	Merge bool   // it is a merge key
	First int    // the line on which this key was given before; 0: it was not
	Value ast.Node
}

// Pairs returns the pairs of a mapping. numbers tells whether a number may stand for a text as a
// key. ok is false for another node than a mapping.
func Pairs(n ast.Node, numbers bool) (pairs []Pair, ok bool) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return nil, false
	}
	first := map[string]int{}
	for _, v := range values {
		p := Pair{At: Of(v.Key), Merge: v.Key.IsMergeKey(), Value: v.Value}
		if p.Key, p.Plain = keyText(v.Key, numbers); p.Plain {
			if p.First = first[p.Key]; p.First == 0 {
				first[p.Key] = p.At.Line
			}
		}
		pairs = append(pairs, p)
	}
	return pairs, true
}

func keyText(key ast.Node, numbers bool) (string, bool) {
	switch key := key.(type) {
	case *ast.StringNode:
		return key.Value, true
	case *ast.BoolNode, *ast.NullNode:
		return key.GetToken().Value, true
	case *ast.IntegerNode, *ast.FloatNode:
		return key.GetToken().Value, numbers
	}
	return "", false
}
