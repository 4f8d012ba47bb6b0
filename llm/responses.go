package llm

// Where the responses of each provider, and the events of their streams, have what matters.
//
// Sources: the response and event types of openai-go v3, anthropic-sdk-go and go-genai.

func openAIResponse() *node {
	root := &node{role: resDoc}
	for _, usage := range []*node{root.at("usage"), root.at("response", "usage")} {
		for _, name := range []string{"prompt_tokens", "input_tokens"} {
			usage.at(name).role = resUsage + useInput
			details := usage.at(name + "_details")
			details.at("cached_tokens").role = resUsage + useCacheRead
			details.at("cache_write_tokens").role = resUsage + useCacheWrite
		}
		for _, name := range []string{"completion_tokens", "output_tokens"} {
			usage.at(name).role = resUsage + useOutput
			usage.at(name+"_details", "reasoning_tokens").role = resUsage + useReasoning
		}
		usage.at("total_tokens").role = resUsage + useTotal
	}
	choice := root.at("choices", "*")
	choice.at("finish_reason").role = resFinish
	choice.at("text").role = resText
	for _, name := range []string{"delta", "message"} {
		m := choice.at(name)
		for _, text := range []string{"content", "refusal", "reasoning", "reasoning_content"} {
			m.at(text).role = resText
		}
		m.at("function_call", "name").role = resText
		m.at("function_call", "arguments").role = resText
		m.at("audio", "transcript").role = resText
		m.at("audio", "data").role = resText
		call := m.at("tool_calls", "*")
		for _, kind := range []string{"function", "custom"} {
			for _, text := range []string{"name", "arguments", "input"} {
				call.at(kind, text).role = resText
			}
		}
	}
	// Responses: the deltas of all kinds of events, and in a document the output.
	root.at("delta").role = resText
	item := root.at("output", "*")
	item.at("content", "*", "text").role = resText
	item.at("summary", "*", "text").role = resText
	item.at("arguments").role = resText
	item.at("input").role = resText
	item.at("name").role = resText
	root.at("item", "name").role = resText // of a tool that is called: no delta has it

	root.at("type").role = resType
	errorFields(root.at("error"), "type", "code")
	errorFields(root.at("response", "error"), "code")
	root.at("code").role = resErrorID // an event of the type "error"
	return root
}

func anthropicResponse() *node {
	root := &node{role: resDoc}
	for _, usage := range []*node{root.at("usage"), root.at("message", "usage")} {
		usage.at("input_tokens").role = resUsage + useInput
		usage.at("cache_read_input_tokens").role = resUsage + useCacheRead
		usage.at("cache_creation_input_tokens").role = resUsage + useCacheWrite
		usage.at("output_tokens").role = resUsage + useOutput
		// What is billed is the sum of these, where there are any: the numbers above are without
		// those of compaction (platform.claude.com/docs, compaction).
		each := usage.at("iterations", "*")
		each.at("input_tokens").role = resRepeated + useInput
		each.at("cache_read_input_tokens").role = resRepeated + useCacheRead
		each.at("cache_creation_input_tokens").role = resRepeated + useCacheWrite
		each.at("output_tokens").role = resRepeated + useOutput
	}
	for _, block := range []*node{root.at("content", "*"), root.at("content_block"), root.at("delta")} {
		for _, text := range []string{"text", "thinking", "partial_json", "name", "data"} {
			block.at(text).role = resText
		}
		for _, tree := range []string{"input", "citation", "citations"} { // input is of a tool, in a document
			block.at(tree).rest = resText
			block.at(tree).role = resText
		}
	}
	root.at("delta", "content").role = resText // a summary that replaces the prompt
	root.at("delta", "stop_reason").role = resFinish
	root.at("stop_reason").role = resFinish
	root.at("type").role = resType
	errorFields(root.at("error"), "type")
	return root
}

func geminiResponse() *node {
	root := &node{role: resDoc, proto: true}
	usage := root.at("usageMetadata")
	for name, n := range map[string]role{
		"promptTokenCount":        useInput,
		"cachedContentTokenCount": useCacheRead,
		"candidatesTokenCount":    useOutput,
		"thoughtsTokenCount":      useReasoning,
		"toolUsePromptTokenCount": useTool,
		"totalTokenCount":         useTotal,
	} {
		usage.at(name).role = resUsage + n
	}
	candidate := root.at("candidates", "*")
	candidate.at("finishReason").role = resFinish
	part := candidate.at("content", "parts", "*")
	part.at("text").role = resText
	part.at("functionCall", "name").role = resText
	args := part.at("functionCall", "args")
	args.role, args.rest = resText, resText
	part.at("executableCode", "code").role = resText
	root.at("promptFeedback", "blockReason").role = resBlocked
	errorFields(root.at("error"), "status", "code")
	return root
}

func errorFields(n *node, ids ...string) {
	n.role = resError
	for _, id := range ids {
		n.at(id).role = resErrorID
	}
}
