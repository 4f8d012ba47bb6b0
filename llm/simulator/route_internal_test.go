package simulator

import (
	"slices"
	"testing"
)

// TestOnePathOneDialect: no two dialects have the same fixed path, unless one of them is apart.
func TestOnePathOneDialect(t *testing.T) {
	t.Parallel()
	owner := map[string]Provider{}
	for _, d := range dialects {
		for path, a := range d.apis {
			if got, api, rest := route("/" + string(d.provider) + path); got != d || api != a || rest != path {
				t.Errorf("/%s%s is not %[1]s's", d.provider, path)
			}
			if d.apart {
				continue
			}
			if other := owner[path]; other != "" {
				t.Errorf("%s and %s both have %s: one of them has to be apart", other, d.provider, path)
			}
			owner[path] = d.provider
		}
	}
}

// TestApart: the dialect of a provider whose paths are OpenAI's lives beside it.
func TestApart(t *testing.T) { // not parallel: it adds a dialect
	before := dialects
	t.Cleanup(func() { dialects = before })
	like := *openAIDialect
	like.provider, like.apart = "like", true
	dialects = append(slices.Clip(dialects), &like)
	for path, want := range map[string]*dialect{
		"/v1/chat/completions": openAIDialect, "/v1/nothing": openAIDialect,
		"/openai/v1/chat/completions": openAIDialect,
		"/like/v1/chat/completions":   &like, "/like/nothing": &like, "/like": nil,
	} {
		if got, _, _ := route(path); got != want {
			t.Errorf("%s is not where it belongs", path)
		}
	}
}
