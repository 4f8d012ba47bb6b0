package rules

import (
	"regexp/syntax"
	"slices"
	"strings"
)

// pattern is a simple regular expression, such as "^red-[0-9]+$": from the beginning of a text, a
// sequence of letters and sets of letters, each of which ends unambiguously where the next begins.
// It needs no search, and is several times as fast as package regexp. FuzzPattern checks that both
// give the same answers.
type pattern struct {
	steps []step
	whole bool // the text ends where the pattern does
}

// step is a literal, or a set of letters that occurs a minimum number of times: that many, or as
// often as possible.
type step struct {
	literal string
	set     *[128]bool // of ASCII; nil for a literal
	least   int
	many    bool
}

// simplePattern returns a pattern for a regular expression, or nil if it is not simple.
func simplePattern(source string) *pattern {
	re, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		return nil
	}
	re = re.Simplify()
	subs := re.Sub
	if re.Op != syntax.OpConcat || len(subs) < 2 || subs[0].Op != syntax.OpBeginText {
		return nil
	}
	p := &pattern{}
	for i, sub := range subs[1:] {
		if sub.Op == syntax.OpEndText && i == len(subs)-2 {
			p.whole = true
			break
		}
		s, ok := stepOf(sub)
		if !ok || i > 0 && !p.steps[i-1].apart(&s) {
			return nil
		}
		p.steps = append(p.steps, s)
	}
	return p
}

func stepOf(re *syntax.Regexp) (s step, ok bool) {
	switch re.Op {
	case syntax.OpLiteral:
		ascii := !slices.ContainsFunc(re.Rune, func(r rune) bool { return r >= 128 })
		return step{literal: string(re.Rune)}, ascii && re.Flags&syntax.FoldCase == 0
	case syntax.OpPlus, syntax.OpStar:
		s, ok = stepOf(re.Sub[0])
		s.many = true
		if re.Op == syntax.OpStar {
			s.least = 0
		}
		return s, ok && s.set != nil && re.Flags&syntax.NonGreedy == 0
	case syntax.OpCharClass:
		s = step{set: &[128]bool{}, least: 1}
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i+1] >= 128 {
				return s, false
			}
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				s.set[r] = true
			}
		}
		return s, len(re.Rune) > 0
	}
	return s, false
}

// apart reports whether it is unambiguous where a step ends and the next one begins.
func (s *step) apart(next *step) bool {
	switch {
	case !s.many:
		return true
	case next.set == nil:
		return !s.set[next.literal[0]]
	case next.least == 0:
		return false // what comes after that would matter too
	}
	for c, in := range s.set {
		if in && next.set[c] {
			return false
		}
	}
	return true
}

// match reports whether the pattern matches the text, or its beginning if it is not whole.
func (p *pattern) match(text string) bool {
	for i := range p.steps {
		s := &p.steps[i]
		if s.set == nil {
			var ok bool
			if text, ok = strings.CutPrefix(text, s.literal); !ok {
				return false
			}
			continue
		}
		n := 0
		for n < len(text) && text[n] < 128 && s.set[text[n]] && (s.many || n < 1) {
			n++
		}
		if n < s.least {
			return false
		}
		text = text[n:]
	}
	return !p.whole || text == ""
}
