package llm

import "maps"

// vllm is a server of vLLM. It has no quotas of its own.
//
// Sources: vLLM 0.11, vllm/entrypoints/openai (paths, fields, errors). What may make a prompt
// longer than its bytes (chat_template, mm_processor_kwargs) or an answer several (use_beam_search)
// is not known here.
var vllm = compatible("vllm", "http://localhost:8000", longestOpen, func(v *provider) {
	v.serves(endChat, endCompletions, endResponses, endEmbeddings)
	v.known = openAIKnown.withFree("request", `
		priority request_id cache_salt add_generation_prompt add_special_tokens continue_final_message
		truncate_prompt_tokens allowed_token_ids prompt_logprobs return_token_ids return_tokens_as_token_ids
		guided_decoding_backend guided_whitespace_pattern normalize`).withFree("stream_options", "continuous_usage_stats")
	v.known.text = maps.Clone(v.known.text)
	v.known.text["request"] += " documents bad_words structured_outputs structural_tag"
	v.limits, v.atStart = nil, nil
})

// longestOpen is the longest context of an open model, Llama 4 Scout (ai.meta.com, "The Llama 4
// herd").
const longestOpen = 10_000_000
