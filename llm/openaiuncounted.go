package llm

import "net/http"

// openAIStored are the calls for what an account has stored (openai-go v3.95).
var openAIStored = []storedCall{
	{http.MethodGet, "/responses/{}", StoredResponse},
	{http.MethodDelete, "/responses/{}", StoredResponse},
	{http.MethodGet, "/responses/{}/input_items", StoredResponse},
	{http.MethodPost, "/responses/{}/cancel", StoredResponse},
	{http.MethodPost, "/files", StoredFile},
	{http.MethodGet, "/files/{}", StoredFile},
	{http.MethodDelete, "/files/{}", StoredFile},
	{http.MethodGet, "/files/{}/content", StoredFile},
}

// openAIUncounted are the other calls of OpenAI's API (openai-go v3.95), and why nothing counts
// them.
var openAIUncounted = []uncounted{
	{"image variations", "/images/variations", "nothing says what one costs; make images with /images/generations or " +
		"/images/edits"},
	{"sound", "/audio", "its price depends on how long it is, which a call does not say"},
	{"live sessions", "/realtime /live", "a session costs by the minute, after the call that begins it"},
	{"videos", "/videos", "their price depends on their length, after the call that asks for them"},
	{"batches", "/batches", "they run later, with models and prompts of a file that nobody here reads"},
	{"fine-tuning", "/fine_tuning /fine-tunes", "training costs by what is in files, after the call"},
	{"assistants", "/assistants /threads /chatkit", "runs call models by themselves, as often as they like: use /responses"},
	{"evals", "/evals", "runs call models by themselves, as often as they like"},
	{"containers", "/containers", "they cost by the time that they are kept"},
	{"vector stores", "/vector_stores", "they cost by what they keep, and are everybody's who has the account"},
	{"uploads", "/uploads", "what is stored is everybody's who has the account"},
	{"files", "/files", "what is stored is everybody's who has the account"},
	{"skills", "/skills", "what is stored is everybody's who has the account"},
	{"conversations", "/conversations", "what is stored is everybody's who has the account"},
	{"stored chat completions", "/chat/completions", "what is stored is everybody's who has the account"},
	{"stored responses", "/responses", "what is stored is everybody's who has the account"},
	{"administration", "/organization /organizations /projects /webhooks", "it is the account's own"},
}
