// Package chat asks for chat completions, and knows what the upstream of the benchmarks answers.
package chat

import (
	"fmt"
	"strconv"
	"strings"
)

// Model is the one that all calls are of.
const Model = "gpt-4.1"

// Path is that of the calls, behind the name of an upstream.
const Path = "/v1/chat/completions"

// Headers of a request that say how the upstream answers.
const (
	HeaderSeed = "X-Bench-Seed" // of a stream: see [Events]
	HeaderPace = "X-Bench-Pace" // PaceSeen, or the time between events of a stream that does not end
)

// PaceSeen lets each event wait until the caller has said that it has the one before.
const PaceSeen = "seen"

// SeenPath is where callers say so, with the seed as the query.
const SeenPath = "/bench/seen"

// Body is a request's body of about size bytes, whose answer has 50 tokens.
func Body(size int, stream, usage bool) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"` + Model + `","max_tokens":50,`)
	if stream {
		b.WriteString(`"stream":true,`)
	}
	if usage {
		b.WriteString(`"stream_options":{"include_usage":true},`)
	}
	b.WriteString(`"messages":[{"role":"user","content":"simulate: output=50\n`)
	const end = `"}]}`
	for i := 0; b.Len()+len(end) < size; i++ {
		b.WriteString(prose[i%len(prose)] + " ")
	}
	b.WriteString(end)
	return []byte(b.String())
}

// prose is what prompts are made of. Its words are short, so that a prompt has more tokens than a
// quarter of its characters: OpenAI charges the larger one, and LiteLLM counts tokens alone.
var prose = strings.Fields(`we saw the old man go out to sea in a red boat and he had no net but he did get a big fish on
	the way so we ate it all at the inn by the bay as the sun set and then we had to go up the hill to bed`)

// Request is a whole request, as it goes over a connection. path has no host. headers are names
// and values in turn.
func Request(host, path, key string, body []byte, headers ...string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n",
		path, host, key)
	for i := 0; i+1 < len(headers); i += 2 {
		b.WriteString(headers[i] + ": " + headers[i+1] + "\r\n")
	}
	b.WriteString("Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n")
	b.Write(body)
	return []byte(b.String())
}
