package main

import (
	"fmt"
	"math"

	"github.com/drawgate/drawgate/llm"
)

var featureNames = []string{
	"Words", "LongLetters", "Capitals", "RareLetters", "Digits", "Punctuation", "PunctuationOn", "PunctuationLong",
	"PunctuationSame", "Spaces", "SpacesOn", "Lines", "LinesOn",
	"Han", "Kana", "Hangul", "OtherWords", "OtherLetters", "OtherBytes", "ShortLetters", "LongBytes",
}

// tooLittle is how much worse it is to reserve too little than too much: the weights come out at
// about the 80th percentile of what is true.
const tooLittle = 4

// least are weights that the texts here say too little about: a text of nothing else must not be
// free.
var least = map[llm.Feature]float64{
	llm.LongLetters: 0.1, llm.Capitals: 0.1, llm.PunctuationOn: 0.15,
	llm.PunctuationLong: 0.6, llm.PunctuationSame: 0.05, llm.SpacesOn: 0.02, llm.LinesOn: 0.1,
}

// fixed are features that the texts here hardly have. Their weights are what o200k_base and
// cl100k_base need for a few sentences of Russian, Greek and Korean.
var fixed = map[string]map[llm.Feature]float64{
	"o200k":  {llm.Hangul: 0.8, llm.OtherWords: 0.8, llm.OtherLetters: 0.3, llm.ShortLetters: 0, llm.LongBytes: 0},
	"cl100k": {llm.Hangul: 1.3, llm.OtherWords: 0.9, llm.OtherLetters: 0.75, llm.ShortLetters: 0, llm.LongBytes: 0},
}

// setWeights finds weights by descent along one weight at a time. Every corpus counts the same.
func setWeights(all []corpus) error {
	for _, encoding := range []string{"o200k", "cl100k"} {
		for i := range all {
			if err := count(all[i].fit); err != nil {
				return err
			}
		}
		w := *llm.O200k()
		for f, n := range least {
			w[f] = max(w[f], n)
		}
		for f, n := range fixed[encoding] {
			w[f] = n
		}
		best := loss(all, &w, encoding)
		for step := 0.3; step > 0.002; {
			improved := false
			for i := range w {
				if _, ok := fixed[encoding][llm.Feature(i)]; ok {
					continue
				}
				for _, factor := range []float64{1 + step, 1 / (1 + step)} {
					old := w[i]
					w[i] = max(old*factor, least[llm.Feature(i)], 1e-3)
					if l := loss(all, &w, encoding); l < best-1e-9 {
						best, improved = l, true
					} else {
						w[i] = old
					}
				}
			}
			if !improved {
				step /= 2
			}
		}
		fmt.Printf("%s, loss %.4f\n", encoding, best)
		for i, name := range featureNames {
			fmt.Printf("\t\t%s: %.3f,\n", name, w[i])
		}
	}
	return nil
}

func loss(all []corpus, w *llm.Weights, encoding string) (sum float64) {
	for _, c := range all[:len(all)-1] { // the last one is a mix of the others
		var one float64
		for i := range c.fit {
			r := math.Log(float64(c.fit[i].counts[encoding]) / math.Max(w.Tokens(&c.fit[i].is), 1))
			if r > 0 {
				r *= tooLittle
			}
			one += math.Abs(r)
		}
		sum += one / float64(max(1, len(c.fit)))
	}
	return sum
}
