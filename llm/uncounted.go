package llm

import "strings"

// uncounted is a group of calls of a provider that no quota counts.
type uncounted struct {
	name  string // for people
	paths string // with which their paths begin, behind the bases, separated by white space
	why   string // nothing counts them
}

// Uncounted returns what calls of a path are, and why nothing counts them. ok is false if the
// provider is not known to have such calls. path is decoded.
func (p *Profile) Uncounted(path string) (name, why string, ok bool) {
	path = strings.ToLower(path)
	for _, base := range p.provider.otherBases {
		if rest, found := strings.CutPrefix(path, base); found && strings.HasPrefix(rest, "/") {
			path = rest
			break
		}
	}
	for i := range p.provider.uncounted {
		u := &p.provider.uncounted[i]
		for begin := range strings.FieldsSeq(u.paths) {
			if rest, found := strings.CutPrefix(path, begin); found && (rest == "" || strings.ContainsAny(rest[:1], "/:")) {
				return u.name, u.why, true
			}
			// Of Gemini's models the end says what is asked for.
			if strings.HasPrefix(begin, ":") && strings.HasSuffix(path, begin) {
				return u.name, u.why, true
			}
		}
	}
	return "", "", false
}
