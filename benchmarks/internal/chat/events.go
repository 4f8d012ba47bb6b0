package chat

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// Answer is the answer to a call that is not streamed.
const Answer = `{"id":"chatcmpl-1","object":"chat.completion","created":1767225600,"model":"` + Model +
	`","choices":[{"index":0,"message":{"role":"assistant",` +
	`"content":"the river had risen in the night and by morning the lower fields were under water","refusal":null},"logprobs":null,"finish_reason":"stop"}],` +
	usage + `}`

const usage = `"usage":{"prompt_tokens":900,"completion_tokens":50,"total_tokens":950}`

const head = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1767225600,"model":"` + Model +
	`","choices":`

// Most events with text that a stream has, and most words of one.
const maxEvents, maxWords = 24, 40

// Events are those of the stream with this seed: 1 to 24 with text of random lengths, and the last
// ones that OpenAI's streams have. withUsage says that the caller asked for the usage.
func Events(seed uint64, withUsage bool) (events [][]byte) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 1 + rnd.IntN(maxEvents) {
		events = append(events, textEvent(rnd))
	}
	events = append(events, []byte(head+`[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n"))
	if withUsage {
		events = append(events, []byte(head+`[],`+usage+`}`+"\n\n"))
	}
	return append(events, []byte("data: [DONE]\n\n"))
}

func textEvent(rnd *rand.Rand) []byte {
	text := ""
	for range 1 + rnd.IntN(maxWords) {
		text += prose[rnd.IntN(len(prose))] + " "
	}
	return fmt.Appendf(nil, `%s[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`+"\n\n", head, text)
}

// Shown reports whether every caller gets an event: the gateway leaves the usage out if it asked
// for that itself.
func Shown(event []byte) bool { return !bytes.HasPrefix(event, []byte(head+"[],")) }
