package main

import (
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"
)

const (
	pieceRunes = 2000
	perCorpus  = 320 // held-out texts: 200 to learn from, and 120 to judge
	perFit     = 100
)

//go:embed corpus
var own embed.FS

// corpora returns all kinds of texts, each in two parts that have no file, seed or paragraph in
// common.
func corpora() ([]corpus, error) {
	root := runtime.GOROOT()
	var list []corpus
	for _, c := range []struct {
		name, dir, ext string
		comments       bool
	}{
		{"English docs", filepath.Join(root, "src"), ".go", true},
		{"Go", filepath.Join(root, "src"), ".go", false},
		{"Python", "/usr/lib/python3", ".py", false},
	} {
		fit, held, err := files(c.dir, c.ext, c.comments)
		if err != nil {
			return nil, err
		}
		if len(fit) > 0 && len(held) > 0 {
			list = append(list, corpus{c.name, fit, held})
		}
	}
	for _, g := range []struct {
		name string
		make func(*rand.Rand, bool) string
	}{
		{"JSON, minified", func(r *rand.Rand, held bool) string { return record(r, held, "") }},
		{"JSON, indented", func(r *rand.Rand, held bool) string { return record(r, held, "  ") }},
		{"log lines with UUIDs", logLines},
		{"base64", encoded},
		{"prose, generated", prose},
	} {
		c := corpus{name: g.name}
		for i := range perFit {
			c.fit = append(c.fit, sample{text: piece(g.make(rand.New(rand.NewPCG(1, uint64(i))), false))})
		}
		for i := range perCorpus {
			c.held = append(c.held, sample{text: piece(g.make(rand.New(rand.NewPCG(2, uint64(i))), true))})
		}
		list = append(list, c)
	}
	for _, lang := range []struct{ name, file string }{{"Chinese prose", "zh"}, {"Japanese prose", "ja"}} {
		c := corpus{name: lang.name}
		var err error
		if c.fit, err = windows("corpus/"+lang.file+"-fit.txt", perFit); err != nil {
			return nil, err
		}
		if c.held, err = windows("corpus/"+lang.file+"-held.txt", perCorpus); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return append(list, mixed(list)), nil
}

// mixed is some of everything, as one application might send it: what is learned of one kind must
// not spoil the others.
func mixed(all []corpus) corpus {
	m := corpus{name: "all, mixed"}
	for i := range perCorpus {
		c := &all[i%len(all)]
		m.held = append(m.held, sample{text: c.held[i*len(c.held)/perCorpus].text})
		if i < perFit {
			m.fit = append(m.fit, sample{text: c.fit[i*len(c.fit)/perFit].text})
		}
	}
	return m
}

// files takes pieces of the files below a folder: which part a file belongs to follows from its
// path. Every file gives one piece at most.
func files(dir, ext string, comments bool) (fit, held []sample, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ext || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "testdata") {
			return nil
		}
		rel, _ := filepath.Rel(dir, path)
		h := fnv.New32a()
		_, _ = h.Write([]byte(rel))
		sum := h.Sum32()
		if sum%4 > 1 && len(fit) >= perFit || sum%4 <= 1 && len(held) >= perCorpus {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !utf8.Valid(text) {
			return nil
		}
		s := string(text)
		if comments {
			s = commentsOf(s)
		}
		if utf8.RuneCountInString(s) < pieceRunes+200 {
			return nil
		}
		s = string([]rune(s)[200 : 200+pieceRunes])
		if sum%4 > 1 {
			fit = append(fit, sample{text: s})
		} else {
			held = append(held, sample{text: s})
		}
		return nil
	})
	return fit, held, err
}

// commentsOf returns the text of a Go file's comments, without the notice of its licence.
func commentsOf(src string) string {
	var b strings.Builder
	for line := range strings.Lines(src) {
		if t, ok := strings.CutPrefix(line, "// "); ok && !strings.Contains(t, "opyright") &&
			!strings.Contains(t, "license") {
			b.WriteString(t)
		}
	}
	return b.String()
}

// piece cuts a text.
func piece(s string) string {
	r := []rune(s)
	return string(r[:min(len(r), pieceRunes)])
}

// windows takes pieces of a text from random starts, each of 300 to 600 characters.
func windows(file string, n int) (list []sample, err error) {
	text, err := own.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := []rune(string(text))
	rng := rand.New(rand.NewPCG(3, uint64(len(r))))
	for range n {
		size := 300 + rng.IntN(300)
		from := rng.IntN(max(1, len(r)-size))
		list = append(list, sample{text: string(r[from:min(len(r), from+size)])})
	}
	return list, nil
}

var (
	fitWords  = strings.Fields("user order price status created updated customer address street city country phone email product amount currency discount total shipping invoice payment method token session device browser version language timezone active enabled description comment rating review category")
	heldWords = strings.Fields("sensor reading station latitude longitude altitude temperature humidity pressure battery firmware calibration vehicle driver route departure arrival platform passenger ticket seat carriage delay reason weather forecast wind direction speed warehouse shelf quantity supplier batch expiry")
	fitNames  = strings.Fields("Anna Miller Tom Baker Julia Fischer Peter Novak Maria Garcia David Kim Laura Rossi Paul Martin Berlin London Madrid Prague Seoul Rome")
	heldNames = strings.Fields("Ingrid Larsen Kofi Mensah Priya Sharma Yusuf Demir Chloe Dubois Mateo Silva Hana Sato Oslo Accra Mumbai Ankara Lyon Lisbon Osaka Tromso")
)

func words(held bool) (keys, names []string) {
	if held {
		return heldWords, heldNames
	}
	return fitWords, fitNames
}

func pick(r *rand.Rand, list []string) string { return list[r.IntN(len(list))] }

func uuid(r *rand.Rand) string {
	b := random(r, 16)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// record makes a list of records as JSON.
func record(r *rand.Rand, held bool, indent string) string {
	keys, names := words(held)
	var list []any
	for range 60 {
		m := map[string]any{}
		for range 4 + r.IntN(6) {
			key := pick(r, keys)
			if r.IntN(3) == 0 {
				key += "_" + pick(r, keys)
			}
			m[key] = value(r, keys, names)
		}
		list = append(list, m)
	}
	text, _ := json.Marshal(list)
	if indent != "" {
		text, _ = json.MarshalIndent(list, "", indent)
	}
	return string(text)
}

func value(r *rand.Rand, keys, names []string) any {
	switch r.IntN(8) {
	case 0:
		return r.IntN(100_000)
	case 1:
		return float64(r.IntN(1_000_000)) / 100
	case 2:
		return r.IntN(2) == 0
	case 3:
		return pick(r, names) + " " + pick(r, names)
	case 4:
		return fmt.Sprintf("2026-%02d-%02dT%02d:%02d:%02dZ", 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60),
			r.IntN(60))
	case 5:
		return map[string]any{pick(r, keys): pick(r, names), pick(r, keys): r.IntN(1000)}
	case 6:
		return []string{pick(r, keys), pick(r, keys)}
	}
	return nil
}

func logLines(r *rand.Rand, held bool) string {
	keys, _ := words(held)
	var b strings.Builder
	for b.Len() < 2*pieceRunes {
		if held {
			fmt.Fprintf(&b, "%d.%03d %s[%d]: trace=%s span=%s %s=%d took=%.2fms\n", 1_760_000_000+r.IntN(1e7),
				r.IntN(1000), pick(r, keys), r.IntN(1e5), uuid(r), hex.EncodeToString(random(r, 8)), pick(r, keys),
				r.IntN(1e6), r.Float64()*100)
			continue
		}
		fmt.Fprintf(&b, "2026-03-%02dT%02d:%02d:%02d.%03dZ %s %s request_id=%s user=%s status=%d bytes=%d ip=10.%d.%d.%d\n",
			1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000),
			pick(r, []string{"INFO", "WARN", "ERROR", "DEBUG"}), pick(r, keys), uuid(r), uuid(r), 200+r.IntN(300),
			r.IntN(1e6), r.IntN(256), r.IntN(256), r.IntN(256))
	}
	return b.String()
}

func encoded(r *rand.Rand, held bool) string {
	if held && r.IntN(2) == 0 {
		return base64.URLEncoding.EncodeToString(random(r, 1500))
	}
	return base64.StdEncoding.EncodeToString(random(r, 1500))
}

var fitProse = strings.Fields("the of and to in that was he it his is with as for had you not be her on at by which have or from this him but all she they were my are me one their so an said them we who would been will no when there if more out up into do any your what has man could other than our some very time upon about may its only now like little then can made should did us such great before must two these see know over much down after first good men own never most old shall day where those came come himself way work life without go make well through being long say might how am too even again many back here think every people went same last thought away under take found hand eyes still place while just also")

var heldProse = strings.Fields("yesterday engineers replaced several valves near the northern reservoir because maintenance crews had noticed unusual vibrations during ordinary inspections although nobody expected serious damage residents received printed notices explaining temporary restrictions whereas neighbouring villages borrowed portable pumps while a committee debated whether insurance would eventually cover additional expenses meanwhile journalists interviewed pensioners who remembered comparable incidents decades earlier and described candlelit evenings with considerable affection")

func prose(r *rand.Rand, held bool) string {
	list := fitProse
	if held {
		list = heldProse
	}
	var b strings.Builder
	for b.Len() < 2*pieceRunes {
		n := 6 + r.IntN(14)
		for i := range n {
			w := pick(r, list)
			if i == 0 {
				w = strings.ToUpper(w[:1]) + w[1:]
			}
			b.WriteString(w)
			switch {
			case i == n-1:
				b.WriteString(". ")
			case r.IntN(9) == 0:
				b.WriteString(", ")
			default:
				b.WriteByte(' ')
			}
		}
		if r.IntN(5) == 0 {
			b.WriteString("\n\n")
		}
	}
	return b.String()
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
