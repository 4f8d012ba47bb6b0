package llm

import "strings"

// Entry returns which of n names and patterns such as "gpt-4*" counts the calls of a model, or -1
// if none fits it. at returns one of them.
//
//   - The model's own name decides, wherever it stands; if none is written the same, then one that
//     differs in capitals only, which Azure passes over.
//   - Otherwise the first one that fits decides,
//   - unless one before it names another version of the model, as providers count all versions
//     together: the one whose name the model's begins with, the longest of several, or else the
//     first.
func (p *Profile) Entry(model string, n int, at func(int) string) int {
	fits, folded := false, -1
	for i := range n {
		switch name := at(i); {
		case name == model:
			return i
		case !fits:
			prefix, open := strings.CutSuffix(name, "*")
			fits = open && strings.HasPrefix(model, prefix)
		}
		if folded < 0 && strings.EqualFold(at(i), model) {
			folded = i
		}
	}
	switch {
	case !fits:
		return -1
	case folded >= 0:
		return folded
	}
	lower := strings.ToLower(model)
	family, bare := "", bareModel(lower)
	version, longest := -1, -1
	for i := range n {
		name := strings.ToLower(at(i))
		if prefix, open := strings.CutSuffix(name, "*"); open {
			if !strings.HasPrefix(lower, prefix) {
				continue
			}
			if version >= 0 {
				return version
			}
			return i
		}
		if family == "" {
			family = p.Family(lower).Name
		}
		if p.Family(name).Name != family {
			continue
		}
		same := 0 // bytes of the name, if the model's begins with it
		if name = bareModel(name); strings.HasPrefix(bare, name) {
			same = len(name)
		}
		if same > longest {
			version, longest = i, same
		}
	}
	return version // not reached: one fits
}
