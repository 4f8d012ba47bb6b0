package simulator

import "slices"

// dialects are those of all providers. Where two have a path, the later one decides.
var dialects = []*dialect{openAIDialect, anthropicDialect, geminiDialect, genericDialect}

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

// route returns the operation at a path, or nil, and the dialect whose errors fit, or nil.
func route(path string) (*dialect, *api) {
	for _, d := range dialects {
		if a := d.apis[path]; a != nil {
			return d, a
		}
	}
	for _, d := range slices.Backward(dialects) {
		if a, ok := d.route(path); ok {
			return d, a
		}
	}
	return nil, nil
}
