package llm

import "strings"

// known is what is known of a provider's requests. Whatever is not in it is not understood: a call
// that has it reserves the most that it can cost, and is refused where prices hold. Nothing else
// that a request says about itself lowers what is reserved for it.
//
// Sources: the request types of openai-go v3.95, anthropic-sdk-go v1.84 and go-genai v1.77.
type known struct {
	// Fields by the object that has them; names are separated by white space. Those that matter by
	// themselves are in requests.go.
	free map[string]string // neither reach the model nor change what a call costs
	text map[string]string // are a part of the prompt, with everything below them

	parts map[string]partKind // of messages, by their type
	// items are the elements of a response's input, by their type: the field that has their
	// content, or "" if the provider has it.
	items map[string]string
	tools map[string]toolKind // by their type, without its date
	edits map[string]bool     // types of edits of the context that only make it shorter
}

// partKind is what a part of a message can have.
type partKind uint8

const (
	_          partKind = iota
	partInline          // all that it costs is in it
	partImage           // an image, which may be given by its address
	partSource          // a text that says where it is from
)

// toolKind says who runs a tool.
type toolKind uint8

const (
	_          toolKind = iota
	toolClient          // the caller
	toolRun             // the provider, for no more than the tokens
	toolFee             // the provider, for a fee per use
)

// openAIPart are the fields of parts of a response's input, in messages and in outputs of tools.
const openAIPart = "text refusal detail annotations logprobs prompt_cache_breakpoint filename"

var openAIKnown = &known{
	// From top_k on they are of servers that speak the same protocol, such as vLLM. OpenAI refuses
	// them.
	free: map[string]string{
		"request": `
			audio dimensions echo encoding_format frequency_penalty function_call include logit_bias logprobs
			max_tool_calls metadata moderation parallel_tool_calls presence_penalty prompt_cache_key
			prompt_cache_retention reasoning_effort safety_identifier seed stop store
			temperature top_logprobs top_p truncation user verbosity
			top_k min_p repetition_penalty length_penalty min_tokens ignore_eos stop_token_ids skip_special_tokens
			spaces_between_special_tokens include_stop_str_in_output include_reasoning reasoning_format
			enable_thinking`,
		"stream_options":       "include_obfuscation",
		"image_url":            "detail",
		"input_audio":          "format",
		"prompt_cache_options": "mode",
		"reasoning":            "effort summary generate_summary context enabled exclude max_tokens",
	},
	text: map[string]string{
		"request": "suffix chat_template_kwargs guided_json guided_regex guided_choice guided_grammar",
		"message": `
			role name tool_calls tool_call_id function_call refusal annotations reasoning reasoning_content prefix`,
		"part": "text refusal prompt_cache_breakpoint",
		"file": "filename",
		"item": `
			role status phase call_id name namespace caller async summary pending_safety_checks
			acknowledged_safety_checks server_label error approval_request_id reason execution action actions
			arguments approve code input operation outputs queries results tools`,
		"itemPart": openAIPart,
		"prompt":   "version variables",
	},
	parts: kinds(map[partKind]string{
		partInline: `
			- text refusal image_url input_audio file input_text output_text input_image input_file summary_text
			reasoning_text computer_screenshot`,
	}),
	items: map[string]string{
		"message":                 "content",
		"function_call":           "arguments",
		"function_call_output":    "output",
		"custom_tool_call":        "input",
		"custom_tool_call_output": "output",
		"computer_call_output":    "output",
		"local_shell_call":        "action",
		"local_shell_call_output": "output",
		"computer_call":           "action",
		"apply_patch_call":        "operation",
		"apply_patch_call_output": "status",
		"mcp_list_tools":          "tools",
		"mcp_approval_request":    "arguments",
		"mcp_approval_response":   "approve",
		"mcp_call":                "arguments",
		"compaction":              "encrypted_content",
		// What a tool of the provider has found or made is not in its item.
		"item_reference":        "",
		"web_search_call":       "",
		"file_search_call":      "",
		"code_interpreter_call": "",
		"image_generation_call": "",
	},
	tools: kinds(map[toolKind]string{
		toolClient: "function custom local_shell apply_patch computer computer_use_preview namespace",
		toolRun:    "mcp tool_search",
		toolFee: `
			web_search web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11 file_search
			code_interpreter`,
	}),
}

var anthropicKnown = &known{
	free: map[string]string{
		"request": "diagnostics metadata stop_sequences temperature top_k top_p",
	},
	text: map[string]string{
		"request":       "tool_choice output_format output_config",
		"message":       "role",
		"cache_control": "type scope",
		"part": `
			text citations id input name tool_use_id toolset_name is_error thinking signature data title context
			caller encrypted_content url page_age retrieved_at stdout stderr encrypted_stdout return_code error_code
			error_message tool_name server_name tool_references file_type num_lines start_line total_lines
			is_file_update lines new_lines new_start old_lines old_start`,
	},
	parts: kinds(map[partKind]string{
		partInline: `
			- text document thinking redacted_thinking tool_use tool_result server_tool_use mcp_tool_use
			mcp_tool_result tool_reference web_search_tool_result web_search_result web_search_tool_result_error
			web_fetch_tool_result web_fetch_result web_fetch_tool_result_error code_execution_tool_result
			code_execution_result code_execution_tool_result_error bash_code_execution_tool_result
			bash_code_execution_result text_editor_code_execution_tool_result tool_search_tool_result
			tool_search_tool_search_result tool_search_tool_result_error`,
		partImage:  "image",
		partSource: "search_result",
	}),
	tools: kinds(map[toolKind]string{
		toolClient: "- custom bash text_editor computer memory",
		toolRun:    "web_fetch tool_search_tool_regex tool_search_tool_bm25 mcp_toolset",
		toolFee:    "web_search code_execution",
	}),
	edits: map[string]bool{"clear_tool_uses_20250919": true, "clear_thinking_20251015": true},
}

// Gemini has no types: a part or a tool is what its field's name says.
var geminiKnown = &known{
	free: map[string]string{
		"request": "safetySettings store taskType outputDimensionality labels",
		"generationConfig": `
			audioTimestamp enableEnhancedCivicAnswers frequencyPenalty imageConfig logprobs mediaResolution
			presencePenalty responseLogprobs responseMimeType seed speechConfig stopSequences temperature
			thinkingConfig topK topP`,
		"media": "displayName",
	},
	text: map[string]string{
		"request": "title",
		"message": "role",
		"part": `
			text functionCall executableCode codeExecutionResult thought thoughtSignature videoMetadata
			mediaResolution partMetadata toolCall toolResponse`,
		"functionResponse": "id name response willContinue scheduling",
	},
}

// kinds returns what each type is, given the types of each kind, separated by white space. A dash
// is of what names no type.
func kinds[K comparable](lists map[K]string) map[string]K {
	all := map[string]K{}
	for kind, list := range lists {
		for name := range strings.FieldsSeq(list) {
			all[strings.TrimPrefix(name, "-")] = kind
		}
	}
	return all
}

// close makes n an object of which only the fields of a place, and those that n has already, are
// known.
func (k *known) close(n *node, place string) *node {
	n.closed = true
	for name := range strings.FieldsSeq(k.free[place]) {
		n.at(name).set(reqSkip)
	}
	for name := range strings.FieldsSeq(k.text[place]) {
		n.opaque(name)
	}
	return n
}

// tool returns who runs a tool of a type, which may have a date such as _20250124; 0 if nobody
// knows.
func (k *known) tool(kind string) toolKind {
	if run, ok := k.tools[kind]; ok {
		return run
	}
	const date = "_20250124"
	if at := len(kind) - len(date); at > 0 && kind[at] == '_' && strings.Trim(kind[at+1:], "0123456789") == "" {
		return k.tools[kind[:at]]
	}
	return 0
}
