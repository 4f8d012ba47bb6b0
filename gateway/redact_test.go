package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const testSecret = "sk-proj_Ab9/x+Y.z=42:end"

// each writes every byte of a text in a format.
func each(text, format string) string {
	var b strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&b, format, text[i])
	}
	return b.String()
}

// encodings write a key in ways in which a provider may quote it.
var encodings = map[string]func(key string) string{
	"as it is":          func(key string) string { return key },
	"capitals":          strings.ToUpper,
	"no capitals":       strings.ToLower,
	"JSON, each":        func(key string) string { return each(key, `\u%04x`) },
	"JSON, capitals":    func(key string) string { return each(key, `\u%04X`) },
	"JSON in JSON":      func(key string) string { return each(key, `\\u%04x`) },
	"JSON, slashes":     func(key string) string { return strings.ReplaceAll(key, "/", `\/`) },
	"Go":                func(key string) string { return each(key, `\x%02x`) },
	"octal":             func(key string) string { return each(key, `\%03o`) },
	"URL":               url.QueryEscape,
	"URL, each":         func(key string) string { return each(key, "%%%02x") },
	"URL, capitals":     func(key string) string { return each(key, "%%%02X") },
	"URL, twice":        func(key string) string { return url.QueryEscape(url.QueryEscape(key)) },
	"URL, JavaScript":   func(key string) string { return each(key, "%%u%04x") },
	"HTML, decimal":     func(key string) string { return each(key, "&#%d;") },
	"HTML, hexadecimal": func(key string) string { return each(key, "&#x%X;") },
	"HTML, by name": func(key string) string {
		return strings.NewReplacer("_", "&lowbar;", "/", "&sol;", "+", "&plus;").Replace(key)
	},
	"HTML, twice":   func(key string) string { return each(key, "&amp;#%d;") },
	"hex":           func(key string) string { return hex.EncodeToString([]byte(key)) },
	"hex, capitals": func(key string) string { return strings.ToUpper(hex.EncodeToString([]byte(key))) },
	"Base64":        func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) },
	"Base64, bearer": func(key string) string {
		return base64.StdEncoding.EncodeToString([]byte("Bearer " + key + "\n"))
	},
	"Base64, basic": func(key string) string { return base64.RawURLEncoding.EncodeToString([]byte("ab" + key)) },
	"Base64 in a URL": func(key string) string {
		return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(key)))
	},
	"Base64 in JSON": func(key string) string {
		return strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte("x"+key)), "/", `\/`)
	},
	"every second escape": func(key string) string {
		return key[:3] + each(key[3:9], `\u%04x`) + each(key[9:12], "%%%02x") + key[12:]
	},
}

// TestRedactor: a key is removed in each encoding, however the answer is cut into pieces, and the
// rest passes byte for byte.
func TestRedactor(t *testing.T) {
	t.Parallel()
	r := newRedactor(testSecret)
	for name, encode := range encodings {
		text := encode(testSecret)
		for size := 1; size <= len(text)+1; size++ {
			before, after := `data: {"x":"sk-proj_`, "\"}\n\n"
			var got []byte
			s := redacting{redactor: r}
			for piece := range slices.Chunk([]byte(before+text+after), size) {
				got = append(got, s.next(bytes.Clone(piece))...)
			}
			got = append(got, s.rest()...)
			if bytes.Contains(got, []byte(text)) || !bytes.HasPrefix(got, []byte(before)) ||
				!bytes.HasSuffix(got, []byte(after)) || len(got) != len(before+text+after) {
				t.Fatalf("%s in pieces of %d: %q", name, size, got)
			}
			left := got[len(before) : len(got)-len(after)]
			if i := bytes.Index(left, []byte(secretMark)); !strings.HasPrefix(name, "Base64") && i != 0 || i < 0 {
				t.Fatalf("%s in pieces of %d: %q is left", name, size, left)
			}
		}
		if got := r.text("a " + text + " b"); strings.Contains(got, text) || !r.in(text) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestRedactorPasses: what is not the key passes, in pieces as whole, and nothing is held back
// behind the end of a line.
func TestRedactorPasses(t *testing.T) {
	t.Parallel()
	r := newRedactor(testSecret)
	parts := []string{
		"sk-", "sk-proj_Ab9", `\`, `\u`, `\u0073`, "%7", "%25", "&", "&#1", "&amp;", "\n", "\n\n",
		"text ", base64.StdEncoding.EncodeToString([]byte(testSecret))[:9], "736b",
	}
	rapid.Check(t, func(t *rapid.T) {
		stream := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 20).Draw(t, "parts"), "")
		s := redacting{redactor: r}
		var got []byte
		for rest := []byte(stream); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			got = append(got, s.next(bytes.Clone(rest[:n]))...)
			if bytes.IndexByte(s.held, '\n') >= 0 {
				t.Fatalf("%q is held back", s.held)
			}
			rest = rest[n:]
		}
		if whole := append(bytes.Clone(got), s.held...); string(whole) != stream {
			t.Fatalf("got  %q\nwant %q", whole, stream)
		}
	})
	for _, key := range []string{"", "ollama", "EMPTY"} {
		s := redacting{redactor: newRedactor(key)}
		if got := s.next([]byte("an ollama is EMPTY")); string(got) != "an ollama is EMPTY" {
			t.Errorf("%q: %q", key, got)
		}
	}
}

// TestCandidates: no form is left out that is at the start of a text, or may be if more follows.
func TestCandidates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]string{testSecret, `\%&\%&\%&`, `a\a%a&aA`, "AAAAAAAAA"}).Draw(t, "key")
		r := newRedactor(key)
		var parts []string
		for _, f := range r.forms {
			for _, text := range []string{f.text, strings.ToUpper(f.text)} {
				for at := range 3 {
					c := text[at]
					parts = append(parts, text[at:at+1], fmt.Sprintf(`\u%04x`, c), fmt.Sprintf("%%%02x", c),
						fmt.Sprintf("&#%d;", c))
				}
			}
		}
		parts = append(parts, key, `\`, `\\\\\\\\`, `\u`, "%", "%25", "&", "&amp;", "x")
		text := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 6).Draw(t, "parts"), ""))
		for i := range r.forms {
			if n, more := r.forms[i].at(text); (n > 0 || more) && r.candidates(text)>>i&1 == 0 {
				t.Fatalf("%q, form %q: %d bytes, more: %t", text, r.forms[i].text, n, more)
			}
		}
	})
}

// FuzzRedactor: whatever a provider sends and however it is cut, the length stays, no key passes,
// and little is held back.
func FuzzRedactor(f *testing.F) {
	for _, encode := range encodings {
		f.Add("x"+encode(testSecret), testSecret, uint8(3))
	}
	f.Add(`\\\\\\\\\\%25%25%25%2525&amp;&amp;&amp;&amp;&amp;`, `\%&\%&\%&`, uint8(1))
	f.Fuzz(func(t *testing.T, stream, key string, size uint8) {
		r := newRedactor(key)
		if r == nil || len(key) > 200 || strings.ContainsAny(key, "\r\n(*") {
			return
		}
		s := redacting{redactor: r}
		var got []byte
		for piece := range slices.Chunk([]byte(stream), int(size)+1) {
			got = append(got, s.next(bytes.Clone(piece))...)
			if len(s.held) > 20*2*len(key) {
				t.Fatalf("%d bytes are held", len(s.held))
			}
		}
		got = append(got, s.rest()...)
		if len(got) != len(stream) || bytes.Contains(got, []byte(key)) {
			t.Fatalf("%q has become %q", stream, got)
		}
	})
}
