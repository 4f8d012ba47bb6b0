package llm

// Where the requests of each provider have what matters. Whatever is not mentioned counts as
// text: a field that is unknown here must not be free.
//
// Sources: the request types of openai-go v3, anthropic-sdk-go and go-genai.

// openAIRequest covers chat completions, completions, responses and embeddings. Their fields do not
// contradict each other.
func openAIRequest() *node {
	root := newRequest(
		"audio", "background", "dimensions", "encoding_format", "frequency_penalty", "function_call", "include", "logit_bias", "logprobs", "max_tool_calls",
		"metadata", "modalities", "moderation", "parallel_tool_calls", "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning",
		"reasoning_effort", "safety_identifier", "seed", "service_tier", "stop", "store", "temperature", "top_logprobs", "top_p", "truncation", "user", "verbosity",
	)
	root.at("background").role = reqBackground
	root.at("service_tier").role = reqTier
	root.at("modalities", "*").role = reqModality
	root.at("web_search_options").set(reqSearch)
	root.at("best_of").role = reqAnswers
	root.at("model").role = reqModel
	root.at("stream").role = reqStream
	root.at("stream_options").set(reqOptions)
	root.at("stream_options", "include_usage").role = reqUsage
	root.at("n").role = reqAnswers
	root.at("max_tokens").role = reqBoth
	root.at("max_completion_tokens").role = reqBoth
	root.at("max_output_tokens").role = reqMaxOutput

	message := root.subtree(reqText, "messages", "*")
	message.role = reqMessage
	part := message.at("content", "*")
	part.at("image_url").set(reqImage).at("url").role = reqData
	part.at("image_url", "detail").role = reqSkip
	part.at("input_audio").set(reqAudio).at("data").role = reqData
	part.at("input_audio", "format").role = reqSkip
	openAIFile(part.at("file"))
	message.at("audio").role = reqHidden // an answer's audio, by its id
	message.at("audio", "id").role = reqVoice

	prompt := root.subtree(reqText, "prompt") // completions: texts; responses: a stored prompt
	prompt.at("id").role = reqHidden
	prompt.at("*").role = reqInput
	root.subtree(reqText, "suffix")
	root.subtree(reqText, "instructions")
	root.subtree(reqText, "prediction")
	root.at("previous_response_id").role = reqHidden
	root.at("conversation").role = reqHidden

	// The input of responses and of embeddings: a text, or a list of items or texts.
	item := root.subtree(reqText, "input", "*")
	item.role = reqInput
	for _, list := range []string{"content", "output"} {
		part = item.at(list, "*")
		part.at("image_url").set(reqImage)
		part.at("file_data").set(reqFile)
		part.at("type").role = reqBlock
		part.at("file_url").role = reqNamed
		part.at("file_id").role = reqNamed
		part.at("filename").role = reqText
		part.at("input_audio").set(reqAudio).at("data").role = reqData
	}
	item.at("output", "image_url").set(reqImage) // a screenshot
	item.at("output", "file_id").role = reqImage // the same, by its id
	item.at("id").role = reqItemID
	item.at("type").role = reqItemType
	item.at("encrypted_content").role = reqSealed

	tool := root.subtree(reqSchema, "tools", "*")
	tool.role = reqTool
	tool.at("type").role = reqSearch
	root.subtree(reqSchema, "functions", "*").role = reqTool
	root.subtree(reqSchema, "response_format")
	root.subtree(reqSchema, "text")
	root.subtree(reqSchema, "tool_choice")
	return root
}

func openAIFile(n *node) {
	n.set(reqFile)
	n.at("file_data").role = reqData
	n.at("file_id").role = reqSkip
	n.at("filename").role = reqText
}

func anthropicRequest() *node {
	root := newRequest("metadata", "service_tier", "stop_sequences", "temperature", "top_k", "top_p", "inference_geo", "speed")
	root.at("model").role = reqModel
	root.at("stream").role = reqStream
	root.at("max_tokens").role = reqMaxOutput
	root.at("service_tier").role = reqTier
	root.at("speed").role = reqSpeed
	root.at("thinking").set(reqThinking).at("type").role = reqThinks
	root.at("inference_geo").role = reqGeo
	root.subtree(reqText, "fallbacks").role = reqFallbacks
	root.subtree(reqText, "cache_control").at("ttl").role = reqTTL
	root.subtree(reqText, "system", "*", "cache_control").at("ttl").role = reqTTL
	root.at("container").role = reqHidden
	message := root.subtree(reqText, "messages", "*")
	message.role = reqMessage
	anthropicBlocks(message.at("content"), 3)
	tool := root.subtree(reqSchema, "tools", "*")
	tool.role = reqTool
	tool.at("type").role = reqSearch
	tool.subtree(reqSchema, "cache_control").at("ttl").role = reqTTL
	root.subtree(reqSchema, "tool_choice")
	root.subtree(reqSchema, "output_format")
	root.subtree(reqSchema, "output_config")
	root.at("mcp_servers", "*").set(reqRun)
	return root
}

// anthropicBlocks covers a list of content blocks: blocks are nested in the results of tools, and
// in documents there.
func anthropicBlocks(list *node, levels int) {
	if levels == 0 {
		return
	}
	block := list.at("*")
	block.at("type").role = reqBlock
	block.subtree(reqText, "cache_control").at("ttl").role = reqTTL
	source := block.at("source")
	source.set(reqFile)
	source.at("type").role = reqSource
	source.at("media_type").role = reqMime
	source.at("data").role = reqData
	source.at("url").role = reqData
	source.at("file_id").role = reqSkip
	content := source.at("content")
	content.role, content.rest = reqText, reqText
	anthropicBlocks(content, levels-1)
	anthropicBlocks(block.at("content"), levels-1)
}

func geminiRequest() *node {
	root := newRequest("model", "safetySettings", "store", "taskType", "outputDimensionality", "labels")
	geminiFields(root)
	// countTokens and batchEmbedContents wrap the same fields.
	geminiFields(root.at("generateContentRequest"))
	one := root.at("requests", "*")
	one.role = reqInput
	geminiFields(one)
	return root
}

func geminiFields(root *node) {
	message := root.subtree(reqText, "contents", "*")
	message.role = reqMessage
	geminiParts(message.at("parts"))
	geminiParts(root.subtree(reqText, "contents").at("parts")) // a single content is accepted as well
	geminiParts(root.subtree(reqText, "content").at("parts"))
	geminiParts(root.subtree(reqText, "systemInstruction").at("parts"))
	root.at("cachedContent").role = reqHidden
	root.at("serviceTier").role = reqTier
	config := root.at("generationConfig").set(reqSkip)
	config.at("maxOutputTokens").role = reqMaxOutput
	config.at("candidateCount").role = reqAnswers
	config.subtree(reqSchema, "responseSchema")
	config.subtree(reqSchema, "responseJsonSchema")
	tool := root.subtree(reqSchema, "tools", "*")
	tool.at("functionDeclarations", "*").role = reqTool
	for _, search := range []string{"googleSearch", "googleSearchRetrieval", "fileSearch", "googleMaps"} {
		tool.at(search).role = reqSearch
	}
	for _, run := range []string{"urlContext", "codeExecution", "computerUse"} { // only their tokens cost
		tool.at(run).role = reqRun
	}
	root.subtree(reqSchema, "toolConfig")
}

func geminiParts(list *node) {
	// A list of parts, or a single one.
	for _, part := range []*node{list.at("*"), list} {
		geminiMedia(part)
		part.at("thoughtSignature").role = reqText
		geminiMedia(part.at("functionResponse", "parts", "*"))
	}
}

func geminiMedia(part *node) {
	for _, name := range []string{"inlineData", "fileData"} {
		in := part.at(name).set(reqInline)
		in.at("mimeType").role = reqMime
		in.at("data").role = reqData
		in.at("fileUri").role = reqSkip
	}
}

// newRequest returns the root of a request. The fields in skip do not reach the model; every other
// one that is not mentioned counts as text.
func newRequest(skip ...string) *node {
	root := &node{role: reqRoot, rest: reqText}
	for _, name := range skip {
		root.at(name).set(reqSkip)
	}
	return root
}
