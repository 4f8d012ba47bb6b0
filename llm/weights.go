package llm

// O200k returns the weights of OpenAI's tokenizer o200k_base, of GPT-4o and later. They are also
// where profiles begin whose tokenizers nobody outside can measure.
//
// Source: benchmarks/cmd/tokens -fit, which says what on. A text costs somewhat more than its
// median true count, as reserving too little is worse than reserving too much.
func O200k() *Weights {
	return &Weights{
		Words: 0.922, LongLetters: 0.100, Capitals: 0.100, RareLetters: 0.703, Digits: 1.078, Punctuation: 0.621,
		PunctuationOn: 0.150, PunctuationLong: 0.600, PunctuationSame: 0.050, Spaces: 0.676, SpacesOn: 0.020,
		Lines:   1.075,
		LinesOn: 0.100, Han: 0.734, Kana: 0.738, Hangul: 0.800, OtherWords: 0.800, OtherLetters: 0.300,
		OtherBytes: 0.640,
	}
}

// Cl100k returns the weights of OpenAI's tokenizer cl100k_base, of GPT-4 and GPT-3.5. For its
// source see [O200k].
func Cl100k() *Weights {
	return &Weights{
		Words: 0.909, LongLetters: 0.100, Capitals: 0.100, RareLetters: 0.826, Digits: 1.111, Punctuation: 0.542,
		PunctuationOn: 0.150, PunctuationLong: 0.600, PunctuationSame: 0.050, Spaces: 0.637, SpacesOn: 0.020,
		Lines:   1.293,
		LinesOn: 0.100, Han: 1.175, Kana: 0.942, Hangul: 1.300, OtherWords: 0.900, OtherLetters: 0.750,
		OtherBytes: 0.739,
	}
}

// commonAfter has a bit for each letter that often follows one in English and code: together they
// make up 93 % of the pairs that the letter begins. It is printed by benchmarks/cmd/tokens -pairs.
var commonAfter = [26]uint32{
	0x01eb94e, // a
	0x1144b11, // b
	0x01a5d91, // c
	0x116cb1d, // d
	0x0aeb87d, // e
	0x01e4931, // f
	0x01e69d0, // g
	0x0084111, // h
	0x02e787d, // i
	0x0545011, // j
	0x044295d, // k
	0x1144939, // l
	0x010d11b, // m
	0x01c417d, // n
	0x03ef82f, // o
	0x01ec995, // p
	0x0110004, // q
	0x11e7155, // r
	0x11cc195, // s
	0x11e4191, // t
	0x00eb956, // u
	0x000c115, // v
	0x0066191, // w
	0x09c8915, // x
	0x00cf110, // y
	0x0021111, // z
}
