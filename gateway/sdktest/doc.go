// Package sdktest has no code of its own: its tests call the gateway with the official SDKs of
// OpenAI, Anthropic and Google, in Go, Python and TypeScript, of which nothing is changed but the
// base URL and the key. Behind the gateway is the simulator of package llm/simulator, or aimock,
// which is not ours.
//
// It is a module of its own, so that nobody who uses Drawgate downloads the SDKs. "make deps"
// installs those for Python and TypeScript.
package sdktest
