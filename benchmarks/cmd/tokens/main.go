// Command tokens compares llm's estimates of tokens with OpenAI's real tokenizers, on texts that
// the weights were not set on, and sets the weights.
//
//	go run ./cmd/tokens          prints the comparison, for results/tokens/held-out.txt: add the commit
//	go run ./cmd/tokens -pairs   prints the table of letters that follow each other
//	go run ./cmd/tokens -fit     prints the weights
//	go run ./cmd/tokens -table   prints texts with their true counts, for llm/testdata
//
// The texts are of Go's own source and documentation (BSD), of Python's standard library if there
// is one (PSF), of English books in the public domain if the module cache has them, of corpus/, or
// generated here from fixed seeds. corpus/*-fit.txt begin with paragraphs of Lu Xun (1881–1936) and
// Natsume Sōseki (1867–1916), which are in the public domain; everything else was written for this.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/tiktoken-go/tokenizer"

	"github.com/drawgate/drawgate/llm"
)

var (
	pairs = flag.Bool("pairs", false, "print the table of letters that follow each other")
	fit   = flag.Bool("fit", false, "print the weights")
	table = flag.Bool("table", false, "print texts with their true counts")
)

// sample is a text with what is true of it.
type sample struct {
	text   string
	counts map[string]int // by encoding
	is     llm.Text
}

// corpus is texts of one kind.
type corpus struct {
	name      string
	fit, held []sample
}

var encodings = map[string]tokenizer.Encoding{"o200k": tokenizer.O200kBase, "cl100k": tokenizer.Cl100kBase}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tokens:", err)
		os.Exit(1)
	}
}

func run() error {
	all, err := corpora()
	if err != nil {
		return err
	}
	switch {
	case *pairs:
		printPairs(all)
		return nil
	case *table:
		return printTable(all)
	case *fit:
		return setWeights(all)
	}
	return compare(all)
}

// count adds the true counts and the features.
func count(list []sample) error {
	for name, e := range encodings {
		codec, err := tokenizer.Get(e)
		if err != nil {
			return err
		}
		for i := range list {
			n, err := codec.Count(list[i].text)
			if err != nil {
				return err
			}
			if list[i].counts == nil {
				list[i].counts = map[string]int{}
				list[i].is = llm.Measure(list[i].text)
			}
			list[i].counts[name] = n
		}
	}
	return nil
}

// models are models whose tokenizer is known.
var models = []struct{ name, encoding string }{{"gpt-4o", "o200k"}, {"gpt-4", "cl100k"}}

func compare(all []corpus) error {
	fmt.Printf("# go run ./cmd/tokens, %s, github.com/tiktoken-go/tokenizer v0.10.0\n", runtime.Version())
	fmt.Println("# ratio = true tokens ÷ estimate of the whole call: more than 1 means that too little was reserved")
	fmt.Println("# held out: texts that the weights were not set on; learned: after 200 other calls of the same kind were settled")
	for _, m := range models {
		fmt.Printf("\n%s (%s)\n%-22s %5s  %-24s %-24s %-9s %s\n", m.name, m.encoding, "corpus", "texts",
			"held out p5/p50/p95/max", "learned p5/p50/p95/max", "upper max", "text set on p50/p95")
		for _, c := range all {
			if err := count(c.held); err != nil {
				return err
			}
			if err := count(c.fit); err != nil {
				return err
			}
			if err := compareOne(m.name, m.encoding, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func compareOne(model, encoding string, c corpus) error {
	p := llm.OpenAI()
	var fresh, taught llm.Estimator
	var before, upper []float64
	type settled struct {
		call *llm.Call
		used llm.Usage
	}
	calls := func(list []sample) (out []settled, err error) {
		for i := range list {
			call, err := p.Parse(http.MethodPost, "/v1/chat/completions", nil, body(model, list[i].text))
			if err != nil {
				return nil, err
			}
			// As the provider counts: the text, a token for the role, and six that frame the
			// message.
			out = append(out, settled{call, llm.Usage{Input: int64(list[i].counts[encoding] + 7), InputKnown: true}})
		}
		return out, nil
	}
	held, err := calls(c.held)
	if err != nil {
		return err
	}
	ratio := func(s settled, e llm.Estimate) float64 { return float64(s.used.Input) / float64(e.Input) }
	for _, s := range held {
		before = append(before, ratio(s, fresh.Likely(p, s.call)))
		upper = append(upper, ratio(s, p.Upper(s.call)))
	}
	rng := rand.New(rand.NewPCG(7, 7))
	order := rng.Perm(len(held))
	var after []float64
	for i, k := range order {
		if i >= 200 || i >= len(order)*2/3 {
			after = append(after, ratio(held[k], taught.Likely(p, held[k].call)))
			continue
		}
		taught.Learn(p, held[k].call, held[k].used)
	}
	known, err := calls(c.fit)
	if err != nil {
		return err
	}
	var set []float64
	for _, s := range known {
		set = append(set, ratio(s, fresh.Likely(p, s.call)))
	}
	fmt.Printf("%-22s %5d  %-24s %-24s %-9.2f %.2f/%.2f\n", c.name, len(held), spread(before), spread(after),
		slices.Max(upper), at(set, 0.5), at(set, 0.95))
	return nil
}

func body(model, text string) []byte {
	return fmt.Appendf(nil, `{"model":%q,"max_tokens":1,"messages":[{"role":"user","content":%s}]}`, model, quote(text))
}

func spread(r []float64) string {
	return fmt.Sprintf("%.2f/%.2f/%.2f/%.2f", at(r, 0.05), at(r, 0.5), at(r, 0.95), slices.Max(r))
}

func at(r []float64, q float64) float64 {
	r = slices.Sorted(slices.Values(r))
	return r[min(len(r)-1, int(q*float64(len(r))))]
}

// printPairs prints, for each letter, which letters make up 93 % of the pairs that it begins.
func printPairs(all []corpus) {
	var n [26][26]int
	for _, c := range all {
		if c.name != "English docs" && c.name != "Go" && c.name != "Python" {
			continue
		}
		for _, s := range c.fit {
			t := strings.ToLower(s.text)
			for i := 1; i < len(t); i++ {
				if a, b := t[i-1]-'a', t[i]-'a'; a < 26 && b < 26 {
					n[a][b]++
				}
			}
		}
	}
	for a := range n {
		total := 0
		for _, k := range n[a] {
			total += k
		}
		order := make([]int, 26)
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(x, y int) int { return n[a][y] - n[a][x] })
		var bits uint32
		sum := 0
		for _, b := range order {
			if float64(sum) >= 0.93*float64(total) {
				break
			}
			sum += n[a][b]
			bits |= 1 << b
		}
		fmt.Printf("\t0x%07x, // %c\n", bits, 'a'+a)
	}
}

// printTable prints a few texts of each kind with their true counts, as JSON lines.
func printTable(all []corpus) error {
	for _, c := range all {
		if err := count(c.held); err != nil {
			return err
		}
		if slices.Contains([]string{"English docs", "Go", "Python", "all, mixed"}, c.name) {
			continue // texts of others are not copied
		}
		for i := 0; i < len(c.held) && i < 6; i++ {
			s := c.held[i*len(c.held)/6]
			cut := []rune(s.text)
			s.text = string(cut[:min(len(cut), 400)])
			one := []sample{{text: s.text}}
			if err := count(one); err != nil {
				return err
			}
			fmt.Printf("{\"kind\":%s,\"o200k\":%d,\"cl100k\":%d,\"text\":%s}\n", quote(c.name), one[0].counts["o200k"],
				one[0].counts["cl100k"], quote(s.text))
		}
	}
	return nil
}
