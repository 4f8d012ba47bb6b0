package llm

import (
	"slices"
	"strings"
)

// Uncounted is a group of calls of a provider that no quota counts.
type Uncounted struct {
	Name   string // for people, such as "batches"
	Why    string // nothing counts them
	Stored bool   // some of them are known by [Profile.StoredCall]
}

// uncounted are Uncounted calls, and with what their paths begin, behind otherBases, separated by
// white space. What begins with a colon ends a path.
type uncounted struct {
	name, paths, why string
}

// Uncounted returns what calls of a path are, and why nothing counts them. ok is false if the
// provider is not known to have such calls. path is decoded.
func (p *Profile) Uncounted(path string) (group Uncounted, ok bool) {
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
			rest, found := strings.CutPrefix(path, begin)
			found = found && (rest == "" || strings.ContainsAny(rest[:1], "/:"))
			if found || strings.HasPrefix(begin, ":") && strings.HasSuffix(path, begin) {
				stored := slices.ContainsFunc(p.provider.storedCalls, func(c storedCall) bool {
					return c.form == begin || strings.HasPrefix(c.form, begin+"/")
				})
				return Uncounted{u.name, u.why, stored}, true
			}
		}
	}
	return Uncounted{}, false
}
