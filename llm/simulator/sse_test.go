package simulator_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/llm/simulator"
)

// sseEvent is one event of a stream.
type sseEvent struct{ name, data string }

// parseEvents reads server-sent events as the standard says, but only what these servers send:
// fields named event and data, once each, in this order, with a space after the colon; one kind of
// line end; nothing after the last empty line.
func parseEvents(text string) (events []sseEvent, err error) {
	end := "\n"
	if strings.Contains(text, "\r\n") {
		end = "\r\n"
	}
	for block := range strings.SplitAfterSeq(text, end+end) {
		if block == "" {
			return events, nil
		}
		body, ok := strings.CutSuffix(block, end+end)
		if !ok {
			return events, fmt.Errorf("the stream ends within an event: %q", block)
		}
		var e sseEvent
		lines := strings.Split(body, end)
		if name, ok := strings.CutPrefix(lines[0], "event: "); ok {
			e.name, lines = name, lines[1:]
		}
		if len(lines) != 1 {
			return events, fmt.Errorf("an event has the lines %q", lines)
		}
		if e.data, ok = strings.CutPrefix(lines[0], "data: "); !ok || strings.ContainsAny(e.data, "\r\n") {
			return events, fmt.Errorf("an event has the line %q", lines[0])
		}
		events = append(events, e)
	}
	return events, nil
}

// streamOf returns the events of a stream that must be complete.
func streamOf(t testing.TB, got reply) []sseEvent {
	t.Helper()
	if got.status != 200 || got.err != nil || got.header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Fatalf("got %d %v %s, %v", got.status, got.header, got.body, got.err)
	}
	events, err := parseEvents(got.body)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// names returns the names of events, or what their data says is their kind.
func names(events []sseEvent) (all []string) {
	for _, e := range events {
		all = append(all, e.name)
	}
	return all
}

const steerStream = "simulate: output=5 size=2"

const streamed = "the gate lets some water"

func TestChatStream(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	events := streamOf(t, post(t, s, chatPath, chat(steerStream,
		`"stream":true,"stream_options":{"include_usage":true},"n":2`)))
	if got := events[len(events)-1]; got.data != "[DONE]" {
		t.Errorf("the stream ends with %q", got.data)
	}
	texts, ends := [2]string{}, [2]any{}
	for _, e := range events[:len(events)-2] {
		if e.name != "" || at(t, e.data, "object") != "chat.completion.chunk" {
			t.Errorf("got %+v", e)
		}
		if !strings.Contains(e.data, `"usage":null`) || !strings.Contains(e.data, `"obfuscation":"x`) {
			t.Errorf("a chunk has no usage or is not padded: %s", e.data)
		}
		i := int(at(t, e.data, "choices.0.index").(float64))
		text, _ := at(t, e.data, "choices.0.delta.content").(string)
		texts[i] += text
		ends[i] = at(t, e.data, "choices.0.finish_reason")
	}
	if texts != [2]string{streamed, streamed} || ends != [2]any{"stop", "stop"} {
		t.Errorf("got %q, %v", texts, ends)
	}
	usage := events[len(events)-2].data
	if !strings.Contains(usage, `"choices":[]`) || at(t, usage, "usage.completion_tokens") != 10.0 {
		t.Errorf("the usage is %s", usage)
	}

	if c := last(t, s); c.Delivered != 10 || c.Output != 10 {
		t.Errorf("the ledger has %+v", c)
	}

	events = streamOf(t, post(t, s, chatPath, chat(steerStream,
		`"stream":true,"stream_options":{"include_obfuscation":false}`)))
	for _, e := range events {
		if strings.Contains(e.data, "usage") || strings.Contains(e.data, "obfuscation") {
			t.Errorf("nobody asked for %s", e.data)
		}
	}
}

func TestResponsesStream(t *testing.T) {
	t.Parallel()
	for last, body := range map[string]string{
		"response.completed":  `{"model":"m","stream":true,"input":[{"role":"user","content":[{"type":"input_text","text":"simulate: output=5 size=2"}]}]}`,
		"response.incomplete": `{"model":"m","stream":true,"input":"simulate: output=9 size=2","max_output_tokens":5}`,
	} {
		events := streamOf(t, post(t, newServer(t, nil), responsePath, body))
		want := "response.created response.in_progress response.output_item.added response.content_part.added" +
			strings.Repeat(" response.output_text.delta", 3) +
			" response.output_text.done response.content_part.done response.output_item.done " + last
		if got := strings.Join(names(events), " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		text := ""
		for i, e := range events {
			if at(t, e.data, "type") != e.name || at(t, e.data, "sequence_number") != float64(i) {
				t.Errorf("event %d: %+v", i, e)
			}
			delta, _ := at(t, e.data, "delta").(string)
			text += delta
		}
		end := events[len(events)-1].data
		if text != streamed || at(t, end, "response.output.0.content.0.text") != streamed ||
			at(t, end, "response.usage.output_tokens") != 5.0 {
			t.Errorf("got %q, %s", text, end)
		}
	}
}

func TestMessagesStream(t *testing.T) {
	t.Parallel()
	events := streamOf(t, post(t, newServer(t, nil), messagePath,
		message(steerStream+" cache_read=3", `"stream":true,"max_tokens":9`)))
	want := "message_start content_block_start ping content_block_delta content_block_delta content_block_delta content_block_stop message_delta message_stop"
	if got := strings.Join(names(events), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	text := ""
	for _, e := range events {
		if at(t, e.data, "type") != e.name {
			t.Errorf("got %+v", e)
		}
		delta, _ := at(t, e.data, "delta.text").(string)
		text += delta
	}
	first, end := events[0].data, events[len(events)-2].data
	if text != streamed || at(t, first, "message.usage.output_tokens") != 1.0 ||
		at(t, first, "message.usage.cache_read_input_tokens") != 3.0 {
		t.Errorf("got %q, %s", text, first)
	}
	if at(t, end, "usage.output_tokens") != 5.0 || at(t, end, "delta.stop_reason") != "end_turn" {
		t.Errorf("it ends with %s", end)
	}
}

func TestGeminiStream(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	body := contents(steerStream + " thoughts=2")
	var chunks []string
	for _, e := range streamOf(t, post(t, s, streamPath+"?alt=sse", body)) {
		chunks = append(chunks, e.data)
	}
	array := post(t, s, streamPath, body)
	var elements []json.RawMessage
	if err := json.Unmarshal([]byte(array.body), &elements); err != nil ||
		array.header.Get("Content-Type") != "application/json; charset=UTF-8" {
		t.Fatalf("%v in %s", err, array.body)
	}
	if len(elements) != len(chunks) || len(chunks) != 4 {
		t.Fatalf("%d elements and %d events", len(elements), len(chunks))
	}
	for _, all := range [][]string{chunks, {
		string(elements[0]), string(elements[1]), string(elements[2]),
		string(elements[3]),
	}} {
		text, used := "", any(nil)
		for i, c := range all {
			part, _ := at(t, c, "candidates.0.content.parts.0.text").(string)
			text += part
			used = at(t, c, "usageMetadata.candidatesTokenCount")
			if finish := at(t, c, "candidates.0.finishReason"); (finish == "STOP") != (i == 3) {
				t.Errorf("chunk %d ends with %v", i, finish)
			}
		}
		if text != streamed || used != 5.0 {
			t.Errorf("got %q, %v", text, used)
		}
	}
}

func TestGenericStream(t *testing.T) {
	t.Parallel()
	s := newServer(t, &simulator.Options{UsageField: "cost", OutputField: "out"})
	events := streamOf(t, post(t, s, genericPath, `{"p":"simulate: output=5 size=2","stream":true,"max_tokens":3}`))
	if len(events) != 4 || events[3].data != "[DONE]" || at(t, events[2].data, "cost.out") != 3.0 ||
		at(t, events[1].data, "delta") != " lets" {
		t.Errorf("got %q", events)
	}
}
