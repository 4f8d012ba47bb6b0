package simulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// request is what the requests of all APIs have in common.
type request struct {
	model  string
	stream bool
	// generates says that words are answered; otherwise numbers are.
	generates bool
	// free says that the call uses no quota.
	free bool

	texts      []string
	fixed      int64 // tokens that are not in the texts
	input      int64 // tokens of the texts, and fixed
	characters int64 // of the texts

	maxTokens int64 // 0: the request sets no bound
	choices   int64 // how many answers it wants, at least 1

	steer
	stored
	images
	// Of some APIs only.
	kept       *keptCall // OpenAI: for what is stored; nil: the call is for a model
	unkept     bool      // OpenAI: the answer is not to be stored
	background bool      // OpenAI: the response only says that the answer will be made
	inputItems []any     // OpenAI: of a response
	usage      bool      // OpenAI: the stream ends with the usage
	obfuscate  bool      // OpenAI: chunks are padded
	sse        bool      // Gemini: the stream consists of events, not of an array
	vectors    int       // embeddings: how many
	width      int       // embeddings: numbers in each
	base64     bool      // embeddings: numbers are in base64
}

// steer is what the prompt asks of the simulator.
type steer struct {
	output     int64 // words
	thoughts   int64 // tokens of thoughts before the words
	hidden     int64 // tokens of what a request refers to, or its tools find
	cacheRead  int64 // tokens of the input that are read from a cache, and written to it
	cacheWrite int64
	delay      time.Duration // before the first word
	pause      time.Duration // between chunks
	size       int64         // words in a chunk
	fault      Fault
}

// Bounds of what a prompt may ask for.
const (
	maxOutput = 1_000_000
	maxSize   = 10_000
	maxPause  = 24 * time.Hour
)

const directive = "simulate:"

// lastDirective returns what the last line says that is a directive, in the last text that has one.
// Earlier ones are of earlier turns.
func lastDirective(texts []string) string {
	for _, text := range slices.Backward(texts) {
		i := strings.LastIndex("\n"+text, "\n"+directive)
		if i >= 0 {
			line, _, _ := strings.Cut(text[i+len(directive):], "\n")
			return line
		}
	}
	return ""
}

// follow does what a directive says.
func (s *steer) follow(line string) error {
	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		if err := s.set(name, value); err != nil {
			return fmt.Errorf("%s %s: %w", directive, word, err)
		}
	}
	if s.fault.Kind == "" {
		return nil
	}
	if err := s.fault.check(); err != nil { // only now: its delay may follow its kind
		return fmt.Errorf("%s fault=%s: %w", directive, s.fault.Kind, err)
	}
	return nil
}

func (s *steer) set(name, value string) (err error) {
	switch name {
	case "output":
		s.output, err = number(value, maxOutput)
	case "thoughts":
		s.thoughts, err = number(value, maxOutput)
	case "stored":
		s.hidden, err = number(value, maxOutput)
	case "cache_read":
		s.cacheRead, err = number(value, maxOutput)
	case "cache_write":
		s.cacheWrite, err = number(value, maxOutput)
	case "size":
		s.size, err = number(value, maxSize)
		s.size = max(1, s.size)
	case "delay":
		s.delay, err = interval(value)
	case "chunk":
		s.pause, err = interval(value)
	case "fault":
		s.fault.Kind = FaultKind(value)
	case "after":
		var n int64
		n, err = number(value, maxOutput)
		s.fault.After = int(n)
	case "stall":
		s.fault.Delay, err = interval(value)
	default:
		err = errors.New("there is no such word (have: output, thoughts, stored, cache_read, cache_write, size, " +
			"delay, chunk, fault, after, stall)")
	}
	return err
}

func number(text string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("it must be a whole number from 0 to %d", most)
	}
	return n, nil
}

func interval(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxPause {
		return 0, fmt.Errorf("it must be a duration from 0s to %v, such as 50ms", maxPause)
	}
	return d, nil
}

// add takes a text of the input into account.
func (q *request) add(text string) { q.texts = append(q.texts, text) }

// count counts the input, and follows the last directive in it.
func (q *request) count(tokens func(model, text string) int) error {
	q.input = q.fixed
	for _, t := range q.texts {
		q.input += int64(max(0, tokens(q.model, t)))
		q.characters += int64(utf8.RuneCountInString(t))
	}
	if err := q.follow(lastDirective(q.texts)); err != nil {
		return err
	}
	q.texts = nil
	if q.refers {
		q.input += q.hidden
	}
	q.cacheRead = min(q.cacheRead, q.input)
	q.cacheWrite = min(q.cacheWrite, q.input-q.cacheRead)
	if q.maxTokens > 0 {
		q.thoughts = min(q.thoughts, q.maxTokens)
	}
	return nil
}

// maxTotal is the largest number of tokens that all answers may have together; 0 if there is no
// bound.
func (q *request) maxTotal() int64 { return q.maxTokens * q.choices }

// words returns how many words each answer has, and whether it is cut off by the bound.
func (q *request) words() (n int64, truncated bool) {
	if q.images.images > 0 {
		return 0, false
	}
	if q.maxTokens == 0 || q.thoughts+q.output <= q.maxTokens {
		return q.output, false
	}
	return q.maxTokens - q.thoughts, true
}

// total returns the tokens of all answers.
func (q *request) total() int64 {
	if n := q.images.images; n > 0 {
		return q.each * n
	}
	n, _ := q.words()
	return (n + q.thoughts) * q.choices
}

// maxBounds are the largest numbers that a request may say.
const (
	maxMaxTokens = 10_000_000
	maxChoices   = 128
)

// content is text, or a list of parts of which some have a text.
type content struct {
	texts []string
	files int64
	given bool
}

// UnmarshalJSON reads null, text, or a list of objects. What has the type of a file is counted as
// one.
func (c *content) UnmarshalJSON(body []byte) error {
	*c = content{}
	if string(body) == "null" {
		return nil
	}
	c.given = true
	var text string
	if json.Unmarshal(body, &text) == nil {
		c.texts = []string{text}
		return nil
	}
	var parts []part
	if err := json.Unmarshal(body, &parts); err != nil {
		return fmt.Errorf("content must be text or a list of parts: %w", err)
	}
	for _, p := range parts {
		c.part(&p)
	}
	return nil
}

// part is one part of a message, of any API.
type part struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text"`
	Refusal   *string         `json:"refusal"`
	Thinking  *string         `json:"thinking"`
	Input     json.RawMessage `json:"input"`
	Content   *content        `json:"content"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Source    json.RawMessage `json:"source"`
}

func (c *content) part(p *part) {
	for _, t := range []*string{p.Text, p.Refusal, p.Thinking} {
		if t != nil {
			c.texts = append(c.texts, *t)
		}
	}
	switch {
	case p.Content != nil: // the result of a tool
		c.texts = append(c.texts, p.Content.texts...)
		c.files += p.Content.files
	case len(p.Input) > 0: // the call of a tool
		c.texts = append(c.texts, p.Name, string(p.Input))
	case p.Text == nil && p.Refusal == nil && p.Thinking == nil && isFile(p.Type):
		var source struct {
			Type string `json:"type"`
			Data string `json:"data"`
		}
		if json.Unmarshal(p.Source, &source) == nil && (source.Type == "text" || source.Type == "content") {
			c.texts = append(c.texts, source.Data)
			return
		}
		c.files++
	}
}

// isFile reports whether a part of this type has a file, as far as its type says.
func isFile(kind string) bool {
	switch kind {
	case "", "image", "image_url", "input_image", "input_audio", "input_file", "file", "document",
		"computer_screenshot", "container_upload":
		return true
	}
	return false
}

// message takes one message into account.
func (q *request) message(c content, more ...string) {
	q.fixed += TokensPerMessage + c.files*TokensPerFile
	for _, t := range append(c.texts, more...) {
		if t != "" {
			q.add(t)
		}
	}
}

// tool takes the description of a tool into account.
func (q *request) tool(schema json.RawMessage) {
	q.fixed += TokensPerMessage
	q.add(string(schema))
}
