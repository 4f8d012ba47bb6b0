package llm

import (
	"time"

	"github.com/drawgate/drawgate"
)

// OpenAI returns the profile of OpenAI's API, and of what speaks the same protocol, such as Azure.
//
// Its quotas count requests and tokens, input and output together, per organisation and project and
// per model family. Whether cached input counts is not documented: it does here.
func OpenAI() *Profile {
	return &Profile{
		Name:  "openai",
		Units: []string{drawgate.UnitRequests, UnitTokens},
		Families: []Family{
			// Contexts and largest outputs as OpenAI's pages of models, and those who cite them,
			// gave them in 2026; where numbers differed, the larger. Dated versions share the
			// limits of their alias.
			{Name: "gpt-5.4", Prefixes: []string{"gpt-5.4"}, Context: 1_050_000, MaxOutput: 128_000},
			{Name: "gpt-5", Prefixes: []string{"gpt-5"}, Context: 400_000, MaxOutput: 128_000},
			{Name: "gpt-5-mini", Prefixes: []string{"gpt-5-mini"}, Context: 400_000, MaxOutput: 128_000},
			{Name: "gpt-5-nano", Prefixes: []string{"gpt-5-nano"}, Context: 400_000, MaxOutput: 128_000},
			{
				Name: "gpt-4.1", Prefixes: []string{"gpt-4.1"}, Context: 1_047_576, MaxOutput: 32_768,
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4.1-mini", Prefixes: []string{"gpt-4.1-mini"}, Context: 1_047_576, MaxOutput: 32_768,
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4.1-nano", Prefixes: []string{"gpt-4.1-nano"}, Context: 1_047_576, MaxOutput: 32_768,
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4o", Prefixes: []string{"gpt-4o", "chatgpt-4o"}, Context: 128_000, MaxOutput: 16_384,
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4o-mini", Prefixes: []string{"gpt-4o-mini"}, Context: 128_000, MaxOutput: 16_384,
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4-turbo", Prefixes: []string{"gpt-4-turbo", "gpt-4-1106", "gpt-4-0125"}, Context: 128_000,
				MaxOutput: 4096, Weights: Cl100k(), Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4-32k", Prefixes: []string{"gpt-4-32k"}, Context: 32_768, MaxOutput: 32_768,
				Weights: Cl100k(), Reasons: ReasonsNever,
			},
			{
				Name: "gpt-4", Prefixes: []string{"gpt-4"}, Context: 8192, MaxOutput: 8192, Weights: Cl100k(),
				Reasons: ReasonsNever,
			},
			{
				Name: "gpt-3.5-turbo", Prefixes: []string{"gpt-3.5"}, Context: 16_385, MaxOutput: 4096,
				Weights: Cl100k(), Reasons: ReasonsNever,
			},
			{Name: "o1", Prefixes: []string{"o1"}, Context: 200_000, MaxOutput: 100_000},
			{Name: "o3", Prefixes: []string{"o3"}, Context: 200_000, MaxOutput: 100_000},
			{Name: "o4-mini", Prefixes: []string{"o4-mini"}, Context: 200_000, MaxOutput: 100_000},
			// Models that are no versions of those whose names they begin with: they have limits
			// and prices of their own, and are much more expensive.
			{Name: "gpt-5-pro", Prefixes: []string{"gpt-5-pro"}, Context: 400_000, MaxOutput: 272_000},
			{Name: "gpt-5.1", Prefixes: []string{"gpt-5.1"}, Context: 400_000},
			{Name: "gpt-5.2", Prefixes: []string{"gpt-5.2"}, Context: 400_000},
			{Name: "gpt-5.2-pro", Prefixes: []string{"gpt-5.2-pro"}},
			{Name: "gpt-5.4-pro", Prefixes: []string{"gpt-5.4-pro"}},
			{Prefixes: []string{"gpt-5."}},
			{Name: "gpt-4.5", Prefixes: []string{"gpt-4.5"}, Reasons: ReasonsNever},
			{Name: "gpt-4o-audio", Prefixes: []string{"gpt-4o-audio"}, Reasons: ReasonsNever},
			{Name: "gpt-4o-mini-audio", Prefixes: []string{"gpt-4o-mini-audio"}, Reasons: ReasonsNever},
			{Name: "gpt-4o-search", Prefixes: []string{"gpt-4o-search"}, Reasons: ReasonsNever},
			{Name: "gpt-4o-mini-search", Prefixes: []string{"gpt-4o-mini-search"}, Reasons: ReasonsNever},
			{Name: "o1-mini", Prefixes: []string{"o1-mini"}},
			{Name: "o1-pro", Prefixes: []string{"o1-pro"}},
			{Name: "o3-mini", Prefixes: []string{"o3-mini"}},
			{Name: "o3-pro", Prefixes: []string{"o3-pro"}},
			{Name: "o3-deep-research", Prefixes: []string{"o3-deep-research"}},
			{Name: "o4-mini-deep-research", Prefixes: []string{"o4-mini-deep-research"}},
			{
				Name: "text-embedding", Prefixes: []string{"text-embedding-"}, Context: 300_000, Weights: Cl100k(),
				Reasons: ReasonsNever,
			},
		},
		Default: Family{
			Context: 1_050_000, MaxOutput: 128_000, CacheReads: true,
			// An image is scaled to at most eight tiles of 512 pixels (2048 by 768). The most
			// expensive model counts 2833 tokens, and 5667 per tile.
			Images: 2833 + 8*5667, Audio: 1_050_000, Video: 1_050_000, Files: 1_050_000,
			Weights: O200k(),
		},
		FailedInput:   true,
		OutputAtStart: true,
		OwnerHeaders:  []string{"OpenAI-Organization", "OpenAI-Project"},
		ResetZone:     "UTC",
		CreditPause:   creditPause,
		MinutePause:   time.Minute,
		ClientMaxWait: 8 * time.Second, // openai-go v3 waits no longer, and then tries again
		Overhead: Overhead{
			// A message is framed by three special tokens, its role, and perhaps a name; the answer
			// is primed with three (github.com/openai/openai-cookbook, "How to count tokens with
			// tiktoken").
			Call: 3, CallBound: 64, Message: 3, MessageBound: 16,
			Tool: 8, ToolBound: 128, Tools: 16, ToolsBound: 1024, Search: 10_000,
			Image: 765, AudioBytes: 1600, VideoBytes: 1000, FileBytes: 50,
		},
		Correction: 1,
		Most:       openAIBound(),
		LeastRatio: 0.7, // measured: the smallest true ÷ estimate of a kind of text is 0.74
		wire:       wireOpenAI,
		table:      openAIKnown,
		request:    openAIRequest(),
		response:   openAIResponse(),
	}
}

// Anthropic returns the profile of Anthropic's API.
//
// Its quotas count requests, input tokens and output tokens apart, per organisation and class of
// models. Input that was read from a cache does not count, except for Haiku 3.5 and Haiku 3. Output
// counts as it is produced; set OutputAtStart for the rule of 2025.
func Anthropic() *Profile {
	return &Profile{
		Name:  "anthropic",
		Units: []string{drawgate.UnitRequests, UnitInputTokens, UnitOutputTokens},
		Families: []Family{
			// docs.anthropic.com, rate limits and models, 2026-02 to 2026-05: all Opus 4.x share
			// one limit, all Sonnet 4.x another.
			{Name: "claude-opus-4", Prefixes: []string{"claude-opus-4"}, Reasons: ReasonsAsked},
			{Name: "claude-sonnet-4", Prefixes: []string{"claude-sonnet-4"}, Reasons: ReasonsAsked},
			{
				Name: "claude-haiku-4.5", Prefixes: []string{"claude-haiku-4-5"}, Context: 200_000, MaxOutput: 64_000,
				Reasons: ReasonsAsked,
			},
			{
				Name: "claude-sonnet-3.7", Prefixes: []string{"claude-3-7-sonnet"}, Context: 200_000,
				MaxOutput: 128_000, Reasons: ReasonsAsked,
			},
			{
				Name: "claude-haiku-3.5", Prefixes: []string{"claude-3-5-haiku"}, Context: 200_000, MaxOutput: 8192,
				CacheReads: true, Reasons: ReasonsNever,
			},
			{
				Name: "claude-haiku-3", Prefixes: []string{"claude-3-haiku"}, Context: 200_000, MaxOutput: 4096,
				CacheReads: true, Reasons: ReasonsNever,
			},
		},
		Default: Family{
			Context: 1_000_000, MaxOutput: 128_000,
			// An image is scaled to 1568 pixels at its long side and about 1600 tokens, for the
			// newest models to 2576 pixels and 4784 tokens (width · height / 750).
			Images: 4784, Audio: 1_000_000, Video: 1_000_000, Files: 1_000_000,
			Weights: O200k(),
		},
		FailedInput:   true,
		ResetZone:     "UTC",
		CreditPause:   creditPause,
		MinutePause:   time.Minute,
		ClientMaxWait: time.Minute, // anthropic-sdk-go sleeps as long as it is told
		Overhead: Overhead{
			// The hidden prompt for tools has up to 346 tokens, for Claude 3 Opus 530
			// (docs.anthropic.com, tool use, pricing and tokens).
			Call: 4, CallBound: 64, Message: 4, MessageBound: 16,
			Tool: 16, ToolBound: 1024, Tools: 346, ToolsBound: 1024, Search: 10_000,
			Image: 1600, AudioBytes: 1600, VideoBytes: 1000, FileBytes: 50,
		},
		// Nobody outside can measure the tokenizer. Others report more tokens than GPT's; learning
		// corrects this.
		Correction: 1.15,
		LeastRatio: 0.7,
		wire:       wireAnthropic,
		table:      anthropicKnown,
		request:    anthropicRequest(),
		response:   anthropicResponse(),
	}
}

const geminiName = "gemini"

// Gemini returns the profile of the Gemini Developer API.
//
// Its quotas count requests and input tokens, per project and model; a day starts at midnight
// Pacific time. Whether cached input and results of tools count is not documented: they do here.
func Gemini() *Profile {
	return &Profile{
		Name:  geminiName,
		Units: []string{drawgate.UnitRequests, UnitInputTokens},
		Families: []Family{
			// ai.google.dev/gemini-api/docs/models, 2026-06.
			{Name: "gemini-2.5-pro", Prefixes: []string{"gemini-2.5-pro"}, MaxOutput: 65_536},
			{Name: "gemini-2.5-flash", Prefixes: []string{"gemini-2.5-flash"}, MaxOutput: 65_536},
			{Name: "gemini-2.5-flash-lite", Prefixes: []string{"gemini-2.5-flash-lite"}, MaxOutput: 65_536},
			{Name: "gemini-2.0-flash", Prefixes: []string{"gemini-2.0-flash"}, MaxOutput: 8192, Reasons: ReasonsNever},
			{
				Name: "gemini-2.0-flash-lite", Prefixes: []string{"gemini-2.0-flash-lite"}, MaxOutput: 8192,
				Reasons: ReasonsNever,
			},
			// Models for images and speech, which are no versions of those either.
			{Name: "gemini-2.5-flash-image", Prefixes: []string{"gemini-2.5-flash-image"}},
			{Name: "gemini-2.5-flash-tts", Prefixes: []string{"gemini-2.5-flash-preview-tts", "gemini-2.5-flash-tts"}},
			{Name: "gemini-2.5-pro-tts", Prefixes: []string{"gemini-2.5-pro-preview-tts", "gemini-2.5-pro-tts"}},
			{Name: "gemini-2.5-flash-native-audio", Prefixes: []string{"gemini-2.5-flash-native-audio"}},
			{Name: "gemini-2.0-flash-image", Prefixes: []string{"gemini-2.0-flash-preview-image", "gemini-2.0-flash-exp-image"}},
		},
		Default: Family{
			Context: 1_048_576, MaxOutput: 65_536, CacheReads: true,
			// Up to Gemini 2.5 an image has 258 tokens per tile of 768 pixels, and nothing bounds
			// the tiles: 64 are eight by eight, 6144 pixels square. Gemini 3 has at most 2240 per
			// image.
			Images: 64 * 258, Audio: 1_048_576, Video: 1_048_576, Files: 1_048_576,
			Weights: O200k(),
		},
		FailedInput:  true,
		OwnerHeaders: []string{"X-Goog-User-Project"},
		ResetZone:    pacific,
		location:     loadZone(pacific),
		CreditPause:  creditPause,
		MinutePause:  time.Minute,
		Overhead: Overhead{
			// Audio has 32 tokens per second, video about 300
			// (ai.google.dev/gemini-api/docs/tokens): at 64 kbit/s and 1 Mbit/s about 250 and 400
			// bytes per token. A page of a file has 258.
			Call: 2, CallBound: 64, Message: 2, MessageBound: 16,
			Tool: 8, ToolBound: 128, Tools: 16, ToolsBound: 1024, Search: 10_000,
			Image: 4 * 258, AudioBytes: 250, VideoBytes: 400, FileBytes: 50,
		},
		Correction: 1.1,
		LeastRatio: 0.7,
		wire:       wireGemini,
		table:      geminiKnown,
		request:    geminiRequest(),
		response:   geminiResponse(),
	}
}
