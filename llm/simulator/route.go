package simulator

import (
	"slices"
	"strings"
)

// dialects are those of all providers. Each is behind /PROVIDER, and, unless it is apart, without
// it too: there no two have the same fixed path, and where several route another path the last one
// decides.
var dialects = []*dialect{
	openAIDialect, anthropicDialect, geminiDialect, genericDialect, xaiDialect, mistralDialect, deepSeekDialect,
	groqDialect, togetherDialect, vllmDialect, ollamaDialect,
}

// providers are the names of all.
var providers = func() (names []Provider) {
	for _, d := range dialects {
		names = append(names, d.provider)
	}
	return names
}()

// dialectOf returns a provider's dialect, or nil.
func dialectOf(p Provider) *dialect {
	if i := slices.Index(providers, p); i >= 0 {
		return dialects[i]
	}
	return nil
}

// route returns the operation at a path, or nil, and the dialect whose errors fit, or nil. rest is
// the path without /PROVIDER.
func route(path string) (d *dialect, a *api, rest string) {
	for _, d := range dialects {
		if rest, ok := strings.CutPrefix(path, "/"+string(d.provider)); ok && strings.HasPrefix(rest, "/") {
			if a = d.apis[rest]; a == nil {
				a, _ = d.route(rest)
			}
			return d, a, rest
		}
	}
	for _, d := range dialects {
		if a = d.apis[path]; a != nil && !d.apart {
			return d, a, path
		}
	}
	for _, d := range slices.Backward(dialects) {
		if a, ok := d.route(path); ok && !d.apart {
			return d, a, path
		}
	}
	return nil, nil, path
}
