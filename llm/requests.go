package llm

// Where the requests of each provider have what matters. The fields that are only known are in
// known.go. Everything else counts as text, and as not understood: see [requestReader.unknown].

// openAIRequest covers chat completions, completions, responses and embeddings. Their fields do not
// contradict each other.
func openAIRequest() *node {
	k := openAIKnown
	root := &node{role: reqRoot, rest: reqText}
	root.at("background").role = reqBackground
	root.at("service_tier").role = reqTier
	root.at("modalities").list().at("*").role = reqModality
	root.at("web_search_options").set(reqSearch)
	root.at("best_of").role = reqAnswers
	root.at("model").role = reqModel
	root.at("stream").role = reqStream
	root.at("stream_options").set(reqOptions)
	root.at("stream_options", "include_usage").role = reqUsage
	k.close(root.at("stream_options"), "stream_options")
	root.at("n").role = reqAnswers
	root.at("max_tokens").role = reqBoth
	root.at("max_completion_tokens").role = reqBoth
	root.at("max_output_tokens").role = reqMaxOutput

	message := root.subtree(reqText, "messages", "*")
	message.role = reqMessage
	message.at("audio").role = reqHidden // an answer's audio, by its id
	message.at("audio", "id").role = reqVoice
	part := message.at("content", "*")
	part.role = reqPart
	part.at("type").role = reqBlock
	image := part.at("image_url").set(reqImage)
	image.at("url").role = reqData
	k.close(image, "image_url")
	openAIAudio(part)
	file := part.at("file").set(reqFile)
	file.at("file_data").role = reqData
	file.at("file_id").role = reqNamed
	k.close(file, "file")
	k.close(part, "part")
	k.close(message, "message")

	prompt := root.subtree(reqText, "prompt") // completions: texts; responses: a stored prompt
	prompt.at("id").role = reqStored
	prompt.at("*").role = reqInput
	k.close(prompt, "prompt").scalar = true
	instructions := root.at("instructions") // only a text: a list of items may name files
	instructions.role, instructions.closed = reqText, true
	instructions.scalar = true
	root.at("prediction").role = reqPrediction
	reasoning := root.at("reasoning").set(reqSkip)
	reasoning.at("mode").role = reqMode
	k.close(reasoning, "reasoning")
	cache := root.at("prompt_cache_options").set(reqSkip)
	cache.at("ttl").role = reqTTL
	k.close(cache, "prompt_cache_options")
	root.at("previous_response_id").role = reqHidden
	root.at("conversation").role = reqHidden

	// The input of responses and of embeddings: a text, or a list of items or texts.
	item := root.subtree(reqText, "input", "*")
	item.role = reqInput
	item.at("*").role = reqText // embeddings: tokens
	for _, list := range []string{"content", "output"} {
		part = item.at(list, "*")
		part.role = reqPart
		openAIItemPart(part)
	}
	openAIItemPart(item.at("output")) // a screenshot
	item.at("output").scalar = true
	item.at("id").role = reqItemID
	item.at("type").role = reqBlock
	item.at("encrypted_content").role = reqSealed
	item.at("container_id").role = reqHidden
	item.at("result").role = reqText
	k.close(item, "item").scalar = true
	item.noted = true

	tools := root.subtree(reqSchema, "tools").list()
	tool := tools.subtree(reqSchema, "*")
	tool.role = reqTool
	tool.at("type").role = reqToolType
	tool.link("tools", tools) // of a namespace
	functions := root.subtree(reqSchema, "functions").list()
	functions.subtree(reqSchema, "*").role = reqFunction
	root.subtree(reqSchema, "response_format")
	root.subtree(reqSchema, "text")
	root.subtree(reqSchema, "tool_choice")
	return k.close(root, "request")
}

func openAIItemPart(part *node) {
	part.at("type").role = reqBlock
	part.at("image_url").role = reqImage
	part.at("file_data").role = reqFile
	part.at("file_url").role = reqNamed
	part.at("file_id").role = reqNamed
	openAIAudio(part)
	openAIKnown.close(part, "itemPart")
}

func openAIAudio(part *node) {
	audio := part.at("input_audio").set(reqAudio)
	audio.at("data").role = reqData
	openAIKnown.close(audio, "input_audio")
}

func anthropicRequest() *node {
	k := anthropicKnown
	root := &node{role: reqRoot, rest: reqText}
	thinking := root.at("thinking").set(reqThinking)
	thinking.at("type").role = reqThinks
	thinking.at("budget_tokens").role = reqBudget
	root.at("model").role = reqModel
	root.at("stream").role = reqStream
	root.at("max_tokens").role = reqMaxOutput
	root.at("service_tier").role = reqTier
	root.at("speed").role = reqSpeed
	root.at("inference_geo").role = reqGeo
	root.subtree(reqText, "fallbacks").role = reqFallbacks
	root.at("container").role = reqHidden
	edit := root.at("context_management").set(reqSkip)
	edit.at("edits").list().at("*").role = reqPart
	edit.at("edits", "*", "type").role = reqEdit
	edit.closed = true
	anthropicCache(root)
	blocks := root.subtree(reqText, "system")
	anthropicBlocks(blocks)
	message := root.subtree(reqText, "messages", "*")
	message.role = reqMessage
	message.link("content", blocks)
	k.close(message, "message")
	tools := root.subtree(reqSchema, "tools").list()
	tool := tools.subtree(reqSchema, "*")
	tool.role = reqTool
	tool.at("type").role = reqToolType
	tool.opaque("input_schema") // which a tool without a type needs
	tool.noted = true
	anthropicCache(tool)
	root.subtree(reqSchema, "tool_choice")
	root.subtree(reqSchema, "output_format")
	root.subtree(reqSchema, "output_config")
	root.at("mcp_servers").list().at("*").set(reqRun)
	return k.close(root, "request")
}

func anthropicCache(n *node) {
	cache := n.subtree(reqText, "cache_control")
	cache.at("ttl").role = reqTTL
	anthropicKnown.close(cache, "cache_control")
}

// anthropicBlocks covers a list of content blocks: blocks are nested in the results of tools, and
// in documents, however deep.
func anthropicBlocks(list *node) {
	block := list.at("*")
	block.role = reqPart
	block.at("type").role = reqBlock
	block.at("file_id").role = reqNamed
	block.link("content", list)
	anthropicCache(block)
	source := block.at("source")
	source.set(reqFile)
	source.at("type").role = reqSource
	source.at("media_type").role = reqMime
	source.at("data").role = reqData
	source.at("url").role = reqData
	source.at("file_id").role = reqNamed
	source.link("content", list)
	source.closed, source.scalar = true, true
	anthropicKnown.close(block, "part")
}

func geminiRequest() *node {
	k := geminiKnown
	root := &node{role: reqRoot, rest: reqText, proto: true}
	geminiFields(root)
	// countTokens and batchEmbedContents wrap the same fields.
	inner := root.at("generateContentRequest")
	geminiFields(inner)
	k.close(inner, "request")
	one := root.at("requests", "*")
	one.role = reqInput
	geminiFields(one)
	k.close(one, "request")
	return k.close(root, "request")
}

func geminiFields(root *node) {
	k := geminiKnown
	message := root.subtree(reqText, "contents", "*")
	message.role = reqMessage
	geminiContent(message)
	geminiContent(root.subtree(reqText, "content"))
	geminiContent(root.subtree(reqText, "systemInstruction"))
	root.at("model").role = reqModelAgain
	root.at("cachedContent").role = reqStored
	root.at("serviceTier").role = reqTier
	config := root.at("generationConfig").set(reqSkip)
	config.at("maxOutputTokens").role = reqMaxOutput
	config.at("candidateCount").role = reqAnswers
	config.at("responseModalities").list().at("*").role = reqModality
	config.subtree(reqSchema, "responseSchema")
	config.subtree(reqSchema, "responseJsonSchema")
	k.close(config, "generationConfig")
	tools := root.subtree(reqSchema, "tools").list()
	tool := tools.subtree(reqSchema, "*")
	tool.at("functionDeclarations").list().at("*").role = reqFunction
	for _, search := range []string{"googleSearch", "googleSearchRetrieval", "fileSearch", "googleMaps"} {
		tool.at(search).role = reqSearch
	}
	for _, run := range []string{"urlContext", "codeExecution"} { // only their tokens cost
		tool.at(run).role = reqRun
	}
	k.close(tool, "tool")
	tool.at("computerUse").role = reqRun
	root.subtree(reqSchema, "toolConfig")
}

func geminiContent(n *node) {
	part := n.at("parts", "*")
	geminiMedia(part)
	response := part.at("functionResponse")
	inner := response.at("parts", "*")
	geminiMedia(inner)
	inner.closed = true
	geminiKnown.close(response, "functionResponse")
	geminiKnown.close(part, "part")
	geminiKnown.close(n, "message")
}

func geminiMedia(part *node) {
	for _, name := range []string{"inlineData", "fileData"} {
		in := part.at(name).set(reqInline)
		in.at("mimeType").role = reqMime
		geminiKnown.close(in, "media")
	}
	part.at("inlineData", "data").role = reqData
	part.at("fileData", "fileUri").role = reqNamed
}
