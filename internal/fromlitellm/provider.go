package fromlitellm

import (
	"net/url"
	"strings"

	"github.com/drawgate/drawgate/llm"
)

// place is how a provider is called: the profile that its calls have here, and where LiteLLM finds
// its address and key if the configuration does not say.
type place struct {
	profile string
	url     string // "" is the profile's; of a compatible one: it has to be in the configuration
	key     string // the variable
}

// places are the providers whose calls pass, by LiteLLM's prefix of a model. Those that speak
// OpenAI's protocol at an address of their own need one in the configuration unless it is here.
var places = map[string]place{
	"openai":                 {"openai", "", "OPENAI_API_KEY"},
	"text-completion-openai": {"openai", "", "OPENAI_API_KEY"},
	"anthropic":              {"anthropic", "", "ANTHROPIC_API_KEY"},
	"gemini":                 {"gemini", "", "GEMINI_API_KEY"},

	"cerebras":     {"openai", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"},
	"deepinfra":    {"openai", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"},
	"deepseek":     {"openai", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"},
	"fireworks_ai": {"openai", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"},
	"groq":         {"openai", "https://api.groq.com/openai/v1", "GROQ_API_KEY"},
	"mistral":      {"openai", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"},
	"moonshot":     {"openai", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"},
	"nvidia_nim":   {"openai", "https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY"},
	"openrouter":   {"openai", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"},
	"perplexity":   {"openai", "https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"},
	"sambanova":    {"openai", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"},
	"together_ai":  {"openai", "https://api.together.ai/v1", "TOGETHERAI_API_KEY"},
	"xai":          {"openai", "https://api.x.ai/v1", "XAI_API_KEY"},

	"custom_openai":       {profile: "openai"},
	"docker_model_runner": {profile: "openai"},
	"hosted_vllm":         {profile: "openai"},
	"litellm_proxy":       {profile: "openai"},
	"llamafile":           {profile: "openai"},
	"lm_studio":           {profile: "openai"},
	"openai_like":         {profile: "openai"},
	"xinference":          {profile: "openai"},
}

// foreign says of prefixes why their models are left out.
var foreign = map[string]string{
	"azure": "Azure's paths have the deployment and an api-version, which LiteLLM adds: write an upstream with profile: " +
		"openai, key_header: api-key and a url of its own, which callers use through Azure's SDK",
	"azure_ai": "Azure AI's paths differ by model: write an upstream by hand",
	"azure_text": "Azure's paths have the deployment and an api-version, which LiteLLM adds: write an upstream with " +
		"profile: openai, key_header: api-key and a url of its own, which callers use through Azure's SDK",
	"bedrock":     "calls of Amazon Bedrock are signed with AWS's credentials, which is not done here",
	"sagemaker":   "calls of Amazon SageMaker are signed with AWS's credentials, which is not done here",
	"vertex_ai":   "Vertex AI wants short-lived tokens of Google's credentials, which are not fetched here",
	"ollama":      "LiteLLM calls Ollama's own API: Ollama also speaks OpenAI's under /v1, with profile: openai and its url",
	"ollama_chat": "LiteLLM calls Ollama's own API: Ollama also speaks OpenAI's under /v1, with profile: openai and its url",
}

// translated is why models of all other providers are left out.
const translated = "its provider is not known to speak the protocol of OpenAI, Anthropic or Gemini, and calls are not " +
	"translated. If it does, write an upstream with its url"

// whyForeign says why models of a provider are left out.
func whyForeign(provider string) string {
	if why := foreign[provider]; why != "" {
		return why
	}
	for _, family := range []string{"bedrock", "sagemaker", "vertex_ai"} {
		if strings.HasPrefix(provider, family+"_") {
			return foreign[family]
		}
	}
	return translated
}

// provider splits a model's name into LiteLLM's prefix and the provider's own name. Without a
// prefix LiteLLM knows the provider of some names; so it is here, of those that are known here.
func provider(model, custom string) (prefix, name string) {
	if custom != "" {
		return custom, strings.TrimPrefix(model, custom+"/")
	}
	if prefix, rest, ok := strings.Cut(model, "/"); ok {
		return prefix, rest
	}
	for _, name := range []string{"openai", "anthropic"} {
		if p, ok := llm.ByName(name); ok && p.Knows(model) {
			return name, model
		}
	}
	return "", model
}

// address returns the url of an upstream for a base URL of LiteLLM, and whether callers write /v1
// behind the upstream's name, as SDKs do. LiteLLM's base has the /v1, a url here does not. ok is
// false if it is no address, or could have a secret.
func address(profile, base string) (link string, v1, ok bool) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || strings.ContainsAny(base, "?#") {
		return "", false, false
	}
	link = strings.TrimRight(base, "/")
	switch profile {
	case "anthropic":
		link = strings.TrimSuffix(strings.TrimSuffix(link, "/messages"), "/v1")
		return link, true, true
	case "gemini":
		return strings.TrimSuffix(strings.TrimSuffix(link, "/v1beta"), "/v1"), true, true
	}
	link, v1 = strings.CutSuffix(link, "/v1")
	return link, v1, true
}
