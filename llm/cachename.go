package llm

import (
	"crypto/sha256"
	"encoding/hex"
)

// CacheName returns what calls have in common whose prompts the provider's cache serves together,
// as far as their bodies say so: OpenAI's prompt_cache_key, or the tools and instructions of a call
// that asks Anthropic to cache its prompt. It is a hash, and "" if the body says nothing. body must
// be what the call was parsed from.
//
// It is for choosing an account whose cache may know the prompt, and for nothing else: callers can
// write whatever they like.
func (c *Call) CacheName(body []byte) string {
	if c.provider == nil || c.provider.cached == nil {
		return ""
	}
	name := c.provider.cached(body)
	if len(name) == 0 {
		return ""
	}
	sum := sha256.Sum256(name)
	return hex.EncodeToString(sum[:])
}
