package llm

// openAIImages are the tokens of images of gpt-image-1 and gpt-image-1-mini, as the guide to image
// generation gave them in 2025 and 2026 (developers.openai.com/api/docs, "Cost and latency"). By
// the same guide an image that is shown before it is done has 100.
var openAIImages = &imageTable{
	families: []string{"gpt-image-1", "gpt-image-1-mini"},
	tokens: map[string]int64{
		"low 1024x1024": 272, "low 1024x1536": 408, "low 1536x1024": 400,
		"medium 1024x1024": 1056, "medium 1024x1536": 1584, "medium 1536x1024": 1568,
		"high 1024x1024": 4160, "high 1024x1536": mostImage1, "high 1536x1024": 6208,
	},
}

const (
	mostImage1 = 6240
	// mostImage2 is for models whose images also have text, or any size, without a published rule.
	// The most that OpenAI's calculator gave for gpt-image-2 in April 2026 was 12,329, for 3584 by
	// 2048 pixels (community.openai.com/t/1379464).
	mostImage2 = 16_384
)

// openAIImageRequest covers images/generations.
func openAIImageRequest(k *known) *node {
	root := &node{role: reqRoot, rest: reqText}
	root.at("model").role = reqModel
	root.at("prompt").role = reqText
	root.at("n").role = reqAnswers
	root.at("size").role = reqSize
	root.at("quality").role = reqQuality
	root.at("stream").role = reqStream
	root.at("partial_images").role = reqPartials
	return k.close(root, "images")
}

// openAIModeration covers moderations.
func openAIModeration(k *known) *node {
	root := &node{role: reqRoot, rest: reqText}
	root.at("model").role = reqModel
	part := root.subtree(reqText, "input", "*")
	part.role = reqPart
	part.at("type").role = reqBlock
	image := part.at("image_url").set(reqImage)
	image.at("url").role = reqData
	k.close(image, "image_url")
	k.close(part, "part").scalar = true
	return k.close(root, "moderations")
}
