package gateway_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/owned"
	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/spend"
)

// keeping configures whose is what is stored at OpenAI. Carol is of alice's team.
func keeping(by string) func(*setup) {
	return func(s *setup) {
		s.config.Keys = append(s.config.Keys, gateway.Key{
			Name: "carol", Sum: sha256.Sum256([]byte(carol)),
			Team: "red",
		})
		for i := range s.config.Upstreams {
			if u := &s.config.Upstreams[i]; u.Name == "openai" {
				u.Stored = &gateway.Stored{By: by, Policy: "upstream"}
			}
		}
	}
}

// as makes a call with a key, and returns its status and body.
func (b *bench) as(key, method, path, body string, headers ...string) (int, string) {
	b.Helper()
	got := b.do(b.raw(b.Context(), method, "/openai"+path, body, append(headers, "Authorization: Bearer "+key)...))
	if got.err != nil {
		b.Error(path, got.err)
	}
	return got.status, got.body
}

var responseID = regexp.MustCompile(`"id":"(resp_\w+)"`)

// respond makes a response, and returns its id.
func (b *bench) respond(key, more string) string {
	b.Helper()
	status, body := b.as(key, http.MethodPost, "/v1/responses",
		`{"model":"gpt-4o","max_output_tokens":50,"input":"the secret of `+key+`"`+more+`}`)
	m := responseID.FindStringSubmatch(body)
	if status != http.StatusOK || m == nil {
		b.Fatalf("a response: got %d %s", status, body)
	}
	return m[1]
}

// upload stores a file, and returns its id.
func (b *bench) upload(key, content string) string {
	b.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	w.WriteField("purpose", "user_data")
	part, _ := w.CreateFormFile("file", "a.txt")
	io.WriteString(part, content)
	w.Close()
	status, body := b.as(key, http.MethodPost, "/v1/files", form.String(), "Content-Type: "+w.FormDataContentType())
	var file struct{ ID string }
	if json.Unmarshal([]byte(body), &file) != nil || status != http.StatusOK || file.ID == "" {
		b.Fatalf("a file: got %d %s", status, body)
	}
	return file.ID
}

// TestStoredIsOnesOwn: whose a response or a file is that was stored, whether its answer was
// streamed or not, may read, continue and delete it, at any process and after a restart; nobody
// else learns whether there is one.
func TestStoredIsOnesOwn(t *testing.T) {
	t.Parallel()
	for _, by := range []string{gateway.StoredByKey, gateway.StoredByTeam} {
		inBubble(t, keeping(by), func(t *testing.T, b *bench) {
			allowed := []string{alice}
			if by == gateway.StoredByTeam {
				allowed = append(allowed, carol)
			}
			plain, streamed, file := b.respond(alice, ""), b.respond(alice, `,"stream":true`), b.upload(alice, "mine")
			other, err := gateway.New(b.engine, b.conf, &gateway.Options{Base: b.sim.Transport()})
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			first := b.h
			for _, h := range []*gateway.Handler{first, other} {
				b.h = h
				for _, key := range []string{alice, bob, carol} {
					mine := slices.Contains(allowed, key)
					for _, c := range []struct{ method, path, body, want string }{
						{http.MethodGet, "/v1/responses/" + plain, "", `"id":"` + plain},
						{http.MethodGet, "/v1/responses/" + streamed, "", `"id":"` + streamed},
						{http.MethodGet, "/v1/responses/" + plain + "/input_items", "", "the secret of"},
						{http.MethodPost, "/v1/responses/" + plain + "/cancel", "", "Cannot cancel"},
						{http.MethodGet, "/v1/files/" + file, "", `"id":"` + file},
						{http.MethodGet, "/v1/files/" + file + "/content", "", "mine"},
						{
							http.MethodPost, "/v1/responses",
							`{"model":"gpt-4o","max_output_tokens":5,"input":"x","previous_response_id":"` + plain + `"}`, `"resp_`,
						},
						{http.MethodPost, "/v1/responses", `{"model":"gpt-4o","max_output_tokens":5,"input":[{"role":"user",` +
							`"content":[{"type":"input_file","file_id":"` + file + `"}]}]}`, `"resp_`},
						{http.MethodPost, "/v1/chat/completions", `{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user",` +
							`"content":[{"type":"file","file":{"file_id":"` + file + `"}}]}]}`, `chatcmpl-`},
					} {
						before := len(b.sim.Calls())
						status, body := b.as(key, c.method, c.path, c.body)
						reached := len(b.sim.Calls()) > before
						if mine && (!strings.Contains(body, c.want) || !reached) {
							t.Errorf("by %s: %s %s %s of %s: got %d %s", by, c.method, c.path, c.body, key, status, body)
						}
						if !mine && (status != http.StatusNotFound || reached ||
							!strings.Contains(body, "of this key")) {
							t.Errorf("by %s: %s %s %s of %s: got %d %s, reached: %t", by, c.method, c.path, c.body, key, status,
								body, reached)
						}
					}
					// What is not there is not told apart from what is somebody else's.
					_, no := b.as(key, http.MethodGet, "/v1/responses/resp_0", "")
					_, foreign := b.as(key, http.MethodGet, "/v1/responses/"+plain, "")
					if !mine && strings.ReplaceAll(foreign, plain, "resp_0") != no {
						t.Errorf("%s is told apart from %s", foreign, no)
					}
				}
			}
			for _, path := range []string{"/v1/responses/" + plain, "/v1/files/" + file} {
				if status, body := b.as(bob, http.MethodDelete, path, ""); status != http.StatusNotFound {
					t.Errorf("bob deletes %s: %d %s", path, status, body)
				}
				if status, body := b.as(alice, http.MethodDelete, path, ""); status != http.StatusOK ||
					!strings.Contains(body, `"deleted":true`) {
					t.Errorf("alice deletes %s: %d %s", path, status, body)
				}
				if status, body := b.as(alice, http.MethodGet, path, ""); status != http.StatusNotFound ||
					!strings.Contains(body, "No such") {
					t.Errorf("%s after its end: %d %s", path, status, body)
				}
			}
		})
	}
}

// TestStoredByNobody: nothing passes whose owner is not known: what a call did not store, what was
// stored for another purpose, upstream or way to tell owners, lists of everybody's, other calls,
// and fields that are not understood. Paths that only look like those of such calls are refused.
func TestStoredByNobody(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		keeping(gateway.StoredByKey)(s)
		s.config.Upstreams[0].Others = []string{"/v1/*"}
	}, func(t *testing.T, b *bench) {
		mine, unstored, file := b.respond(alice, ""), b.respond(alice, `,"store":false`), b.upload(alice, "mine")
		const respond, get = "POST /v1/responses", "GET /v1/responses/"
		with := func(more string) string { return `{"model":"gpt-4o","max_output_tokens":5,"input":"x",` + more + `}` }
		items := func(item string) string { return `{"model":"gpt-4o","max_output_tokens":5,"input":[` + item + `]}` }
		for _, c := range []struct {
			call, body string
			status     int
			want       string
		}{
			{get + mine, "", 200, mine},
			{get + mine + "?include[]=usage&stream=false", "", 200, mine},
			{get + unstored, "", 404, "of this key"},
			{get + file, "", 404, "of this key"},
			{"GET /v1/files/" + mine, "", 404, "of this key"},
			{"GET /v1/files", "", 404, "no list"},
			{"GET /v1/files?limit=1", "", 404, "no list"},
			{"POST /v1/files/" + file, "", 404, "files"},
			{"GET /v1/files/" + file + "/Content", "", 404, "files"},
			{"GET /v1/responses", "", 404, "stored responses"},
			{"POST /v1/responses/" + mine, "", 404, "stored responses"},
			{"PUT /v1/responses/" + mine, "", 404, "stored responses"},
			{"POST /v1/responses/compact", "{}", 404, "stored responses"},
			{"POST /v1/responses/input_tokens", "{}", 404, "stored responses"},
			{"GET /v1/responses/" + mine + "/input_items/x", "", 404, "stored responses"},
			{"GET /v1/Responses/" + mine, "", 404, "stored responses"},
			{"GET /v1/responses/" + mine + "/", "", 400, "slash"},
			{"GET /v1/responses//" + mine, "", 400, "empty segment"},
			{"GET /v1/responses/" + mine + ";x", "", 400, ""},
			{"GET /v1/responses/" + mine + "%20", "", 400, ""},
			{"GET /v1/responses/" + mine + "%2finput_items", "", 400, ""},
			{"GET /v1/responses/x%2f..%2f" + mine, "", 400, ""},
			{"GET /v1/responses/" + mine + ".", "", 404, ""},
			{"GET /x/v1/responses/" + mine, "", 404, ""},
			{"GET /v1/v1/responses/" + mine, "", 404, ""},
			{respond, with(`"previous_response_id":"` + mine + `"`), 200, ""},
			{respond, with(`"previous_response_id":null`), 200, ""},
			{respond, with(`"previous_response_id":"` + unstored + `"`), 404, "of this key"},
			{respond, with(`"previous_response_id":"` + file + `"`), 404, "of this key"},
			{respond, with(`"previous_response_id":["` + mine + `"]`), 400, "conversation"},
			{respond, with(`"previous_response_id":"` + strings.Repeat("r", 9000) + `"`), 404, "of this key"},
			{respond, with(`"Previous_response_id":"` + mine + `"`), 400, "capitals"},
			{respond, with(`"conversation":"conv_1"`), 400, "a conversation"},
			{respond, with(`"conversation":{"id":"conv_1"}`), 400, "a conversation"},
			{respond, with(`"container":"c"`), 400, "the field container"},
			{respond, items(`{"type":"item_reference","id":"msg_1"}`), 400, `\"msg_1\" by its id`},
			{respond, items(`{"id":"msg_1"}`), 400, `\"msg_1\" by its id`},
			{
				respond, items(strings.Repeat(`{"type":"item_reference","id":"rs_1"},`, 100) +
					`{"type":"item_reference","id":"rs_1"}`), 400, "the call names more than 100 things that are stored",
			},
			{respond, items(`{"type":"image_generation_call","id":"ig_1"}`), 400, `\"ig_1\" by its id`},
			{respond, items(`{"type":"image_generation_call","id":"ig_1","result":null}`), 400, `\"ig_1\" by its id`},
			{respond, items(`{"type":"image_generation_call","id":"ig_1","result":"aGVsbG8="}`), 400, `\"ig_1\" by its id`},
			{respond, with(`"prompt":{"id":"pmpt_1","variables":{"a":"text","b":null}}`), 200, ""},
			{respond, with(`"prompt":{"id":"pmpt_1","variables":{"a":{"type":"input_file","file_id":"file-1"}}}`), 400, "something that is stored"},
			{respond, with(`"prompt":{"id":"pmpt_1","variables":{"a":[{"type":"input_image","file_id":"file-1"}]}}`), 400, "something that is stored"},
			{respond, items(`{"role":"user","content":[{"type":"input_image","file_id":"file-1"}]}`), 404, "of this key"},
			{respond, items(`{"type":"computer_call_output","output":{"type":"computer_screenshot","file_id":"file-1"}}`), 404, "no file"},
			{respond, with(`"tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]`), 400, "a tool"},
			{respond, with(`"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-1"]}}]`), 400, "a tool"},
			{respond, with(`"tools":[{"type":"image_generation","input_image_mask":{"file_id":"file-1"}}]`), 400, "a tool"},
			{respond, with(`"tools":[{"type":"web_search"}]`), 200, ""},
			{"POST /v1/chat/completions", `{"model":"gpt-4o","messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}`, 400, "something that is stored"},
			{"GET /v1/vector_stores/vs_1", "", 404, ""}, // others: the simulator has none
		} {
			method, path, _ := strings.Cut(c.call, " ")
			if status, body := b.as(alice, method, path, c.body); status != c.status ||
				!strings.Contains(body, c.want) {
				t.Errorf("%s %s: got %d %s, want %d %q", c.call, c.body, status, body, c.status, c.want)
			}
		}
		more := strings.Repeat(`{"type":"input_image","file_id":"`+file+`"},`, 200)
		if status, body := b.as(alice, http.MethodPost, "/v1/responses",
			items(`{"role":"user","content":[`+strings.TrimSuffix(more, ",")+`]}`)); status != http.StatusBadRequest {
			t.Errorf("200 files: %d %s", status, body)
		}
	})
}

// TestItemsByIDAreOnesOwn: an item of an earlier answer whose content the provider has passes by
// its id for whom it was made, streamed or not, stored or not, as SDKs send it back; for nobody
// else. Items that have their content pass for everybody.
func TestItemsByIDAreOnesOwn(t *testing.T) {
	t.Parallel()
	const plain = `{"id":"resp_1","output":[{"type":"reasoning","id":"rs_1","summary":[]},` +
		`{"id":"rs_2","type":"reasoning","summary":[],"encrypted_content":"sealed"},` +
		`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},` +
		`{"type":"mcp_approval_request","id":"mcpr_1","arguments":"{}"},` +
		`{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"a","id":"rs_3"}]}],` +
		`"usage":{"input_tokens":1,"output_tokens":1}}`
	const streamed = `data: {"type":"response.output_item.added","item":{"type":"reasoning","id":"rs_4","summary":[]}}` + "\n\n" +
		`data: {"item":{"type":"reasoning","id":"rs_5","summary":[]},"type":"response.output_item.done"}` + "\n\n" +
		`data: {"type":"response.completed","response":{"id":"resp_2","usage":{"input_tokens":1,"output_tokens":1}}}` + "\n\n"
	answer := ""
	inBubble(t, keeping(gateway.StoredByKey), func(t *testing.T, b *bench) {
		h, err := gateway.New(b.engine, b.conf,
			&gateway.Options{Base: answers(func(*http.Request) string { return answer })})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		b.h = h
		send := func(key, more string) (int, string) {
			return b.as(key, http.MethodPost, "/v1/responses", `{"model":"gpt-4o","max_output_tokens":5,`+more+`}`)
		}
		for _, answer = range []string{plain, streamed} {
			if status, body := send(alice, `"store":false,"input":"x"`); status != http.StatusOK {
				t.Fatalf("got %d %s", status, body)
			}
		}
		answer = `{}`
		for item, owned := range map[string]bool{
			`{"type":"reasoning","id":"rs_1","summary":[]}`:                                                      true,
			`{"type":"reasoning","id":"rs_5","summary":[{"type":"summary_text","text":"t"}]}`:                    true,
			`{"type":"item_reference","id":"rs_1"}`:                                                              true,
			`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}}`: true,
			`{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}`:                     true,
			`{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":null}`:                             false,
			`{"type":"reasoning","id":"rs_3","summary":[]}`:                                                      false,
			`{"type":"reasoning","id":"rs_4","summary":[]}`:                                                      false,
			`{"type":"reasoning","id":"resp_1","summary":[]}`:                                                    false,
			`{"type":"reasoning","id":["rs_1"],"summary":[]}`:                                                    false,
			`{"type":"code_interpreter_call","id":"ci_1","code":"1","outputs":[]}`:                               false,
			`{"type":"file_search_call","id":"fs_1","queries":["q"],"results":[]}`:                               false,
			`{"type":"message","id":"msg_1","role":"assistant"}`:                                                 false,
			`{"type":"function_call_output","id":"fco_1","call_id":"c"}`:                                         false,
			`{"type":"compaction","id":"cmp_1","encrypted_content":""}`:                                          false,
			`{"type":"mcp_approval_response","approval_request_id":"mcpr_2","approve":true}`:                     false,
		} {
			for _, key := range []string{alice, bob} {
				status, body := send(key, `"input":[`+item+`]`)
				if passes := owned && key == alice; passes != (status == http.StatusOK) ||
					!passes && (status != http.StatusBadRequest || !strings.Contains(body, "by its id") ||
						!strings.Contains(body, "previous_response_id")) {
					t.Errorf("%s of %s: got %d %s", item, key, status, body)
				}
			}
		}
		for _, item := range []string{
			`{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"sealed"}`,
			`{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[]}]}`,
			`{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}","status":"completed"}`,
			`{"type":"function_call_output","call_id":"c","output":"1"}`,
			`{"type":"reasoning","summary":[]}`,
			`{"type":"compaction","id":"cmp_1","encrypted_content":"sealed"}`,
		} {
			if status, body := send(bob, `"input":[`+item+`]`); status != http.StatusOK {
				t.Errorf("%s: got %d %s", item, status, body)
			}
		}
	})
}

// TestPollingWritesOnce: a stored answer that is asked for again and again is not written down each
// time; what was written long ago is.
func TestPollingWritesOnce(t *testing.T) {
	t.Parallel()
	const answer = `{"id":"resp_1","status":"in_progress","output":[{"type":"reasoning","id":"rs_1","summary":[]}],` +
		`"usage":{"input_tokens":1,"output_tokens":1}}`
	inBubble(t, keeping(gateway.StoredByKey), func(t *testing.T, b *bench) {
		h, err := gateway.New(b.engine, b.conf,
			&gateway.Options{Base: answers(func(*http.Request) string { return answer })})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		b.h = h
		written := func() int64 {
			l := b.engine.Limiter(owned.PolicyName)
			key := owned.Key("openai", "key alice", strconv.Itoa(int(llm.StoredItem)), "rs_1")
			st, err := drawgate.Ask{
				Limiter: l, Tenant: owned.Tenant, Key: key,
				Costs: owned.Cost(0),
			}.Status(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			return st.States[0].Used
		}
		if status, body := b.as(alice, http.MethodPost, "/v1/responses", `{"model":"gpt-4o","max_output_tokens":5,"input":"x"}`); status != http.StatusOK {
			t.Fatalf("got %d %s", status, body)
		}
		for range 50 {
			if status, body := b.as(alice, http.MethodGet, "/v1/responses/resp_1", ""); status != http.StatusOK {
				t.Fatalf("got %d %s", status, body)
			}
		}
		if n := written(); n != 1 {
			t.Errorf("the item was written down %d times, want 1", n)
		}
		time.Sleep(time.Hour)
		b.as(alice, http.MethodGet, "/v1/responses/resp_1", "")
		if n := written(); n != 2 {
			t.Errorf("an hour later the item was written down %d times, want 2", n)
		}
	})
}

// TestItemsInDisguise: an item that names another key's by its id, and has something else in it
// that might be taken for its type or content, does not pass; items whose content is in them do.
//
// req: C12
func TestItemsInDisguise(t *testing.T) {
	t.Parallel()
	inBubble(t, keeping(gateway.StoredByKey), func(t *testing.T, b *bench) {
		h, err := gateway.New(b.engine, b.conf,
			&gateway.Options{Base: answers(func(*http.Request) string { return `{}` })})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		b.h = h
		for field, passes := range map[string]bool{
			`"input":[{"type":"item_reference","id":"rs_1","output":{"type":"function_call_output"}}]`:                     false,
			`"input":[{"type":"reasoning","id":"rs_1","summary":[],"output":{"type":"function_call_output"}}]`:             false,
			`"input":[{"type":"item_reference","id":"rs_1","content":"x","output":{"type":"message"}}]`:                    false,
			`"input":[{"type":"item_reference","id":"rs_1","encrypted_content":"x","output":{"type":"reasoning"}}]`:        false,
			`"input":[{"type":"item_reference","id":"rs_1","output":{"type":"input_text","text":"x"}}]`:                    false,
			`"input":[{"id":5,"type":"message","content":"x"}]`:                                                            false,
			`"input":[{"type":"message","id":"msg_1","content":false}]`:                                                    false,
			`"input":[{"type":"message","id":"msg_1","content":[null]}]`:                                                   false,
			`"input":[{"type":"compaction","id":"cmp_1","encrypted_content":false}]`:                                       false,
			`"input":[{"type":"image_generation_call","id":"ig_1","result":0}]`:                                            false,
			`"input":"x","prompt":[{"type":"item_reference","id":"rs_1"}]`:                                                 false,
			`"input":[{"type":"computer_call_output","id":"o_1","output":{"type":"computer_screenshot","image_url":"u"}}]`: true,
			`"input":[{"type":"computer_call","id":"cu_1","action":{"x":1,"y":2,"type":"click"}}]`:                         true,
			`"input":[{"type":"message","id":"msg_1","content":[{"type":"output_text","text":"x"}]}]`:                      true,
		} {
			status, body := b.as(bob, http.MethodPost, "/v1/responses", `{"model":"gpt-4o","max_output_tokens":5,`+field+`}`)
			if want := map[bool]int{true: http.StatusOK, false: http.StatusBadRequest}[passes]; status != want {
				t.Errorf("%s: got %d %s, want %d", field, status, body, want)
			}
		}
	})
}

// TestFilesSayNothingOfItems: a file that is read back, and looks like an answer, makes nobody the
// owner of the items in it: whoever uploaded it has written them.
//
// req: C12
func TestFilesSayNothingOfItems(t *testing.T) {
	t.Parallel()
	const item = `{"type":"reasoning","id":"rs_alice","summary":[]}`
	inBubble(t, keeping(gateway.StoredByKey), func(t *testing.T, b *bench) {
		for _, content := range []string{
			`{"output":[` + item + `]}`,
			`data: {"type":"response.output_item.done","item":` + item + "}\n\n",
		} {
			file := b.upload(bob, content)
			if status, body := b.as(bob, http.MethodGet, "/v1/files/"+file+"/content", ""); status != http.StatusOK ||
				body != content {
				t.Errorf("got %d %s", status, body)
			}
			status, body := b.as(bob, http.MethodPost, "/v1/responses", `{"model":"gpt-4o","max_output_tokens":5,"input":[`+item+`]}`)
			if status != http.StatusBadRequest || !strings.Contains(body, "by its id") {
				t.Errorf("after %s: got %d %s", content, status, body)
			}
		}
	})
}

// TestStoredOnlyWhereAModelMayBeUsed: a key that may use models of some upstreams only reads,
// deletes and stores nothing at another one, also not what is its own.
//
// req: C12
func TestStoredOnlyWhereAModelMayBeUsed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		keeping(gateway.StoredByTeam)(s)
		s.config.Aliases = []gateway.Alias{{
			Name:   "fast",
			Models: []gateway.Target{{Upstream: "openai", Model: "gpt-4o"}},
		}}
	}, func(t *testing.T, b *bench) {
		id, file := b.respond(alice, ""), b.upload(carol, "of the team")
		for list, allowed := range map[string]bool{
			"anthropic/*": false, "open": false, "openai": false, "openai2/*": false, "slow": false,
			"*": true, "open*": true, "openai/*": true, "openai/gpt-4o*": true, "openai/x": true, "fast": true,
		} {
			conf := b.conf
			conf.Keys = slices.Clone(conf.Keys)
			conf.Keys[0].Models = []string{list}
			if err := b.h.Use(conf); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"/v1/responses/" + id, "/v1/files/" + file + "/content"} {
				before := len(b.sim.Calls())
				status, body := b.as(alice, http.MethodGet, path, "")
				if reached := len(b.sim.Calls()) > before; reached != allowed || allowed != (status == http.StatusOK) {
					t.Errorf("%s, %s: got %d %s, reached: %t", list, path, status, body, reached)
				}
			}
			if status, body := b.as(alice, http.MethodPost, "/v1/files", "x"); !allowed &&
				(status != http.StatusNotFound || !strings.Contains(body, "no model of openai")) {
				t.Errorf("%s, an upload: got %d %s", list, status, body)
			}
		}
	})
}

// TestStoredIsRefusedByName: without owners nothing that is stored passes; the error says what it
// is, and what to configure. A call that continues a response passes as ever.
func TestStoredIsRefusedByName(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		id := b.respond(alice, "")
		for call, name := range map[string]string{
			"GET /v1/responses/" + id:                  "(stored responses)",
			"DELETE /v1/responses/" + id:               "(stored responses)",
			"GET /v1/responses/" + id + "/input_items": "(stored responses)",
			"POST /v1/responses/" + id + "/cancel":     "(stored responses)",
			"POST /v1/files":                           "(files)",
			"GET /v1/files/file-1/content":             "(files)",
		} {
			method, path, _ := strings.Cut(call, " ")
			status, body := b.as(alice, method, path, "")
			if status != http.StatusNotFound || !strings.Contains(body, name) ||
				!strings.Contains(body, "stored of the upstream") {
				t.Errorf("%s: got %d %s", call, status, body)
			}
		}
		b.respond(bob, `,"previous_response_id":"`+id+`"`)
	})
	conf := newSetup(keeping(gateway.StoredByKey)).config
	for i := range conf.Upstreams {
		conf.Upstreams[i].Stored = &gateway.Stored{By: gateway.StoredByKey, Policy: "upstream"}
	}
	if _, err := gateway.New(nil, conf, nil); err == nil || !strings.Contains(err.Error(), "anthropic") {
		t.Errorf("owners at a provider whose calls are not known: %v", err)
	}
}

// TestStoredCounts: a call for what is stored counts as a request, and an upload the bytes of its
// request; not as the tokens of the response that it reads. The ledger and what is spent know it,
// and it costs nothing.
func TestStoredCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inBubble(t, func(s *setup) {
		keeping(gateway.StoredByKey)(s)
		s.ledger, s.config.Prices = dir, priced()
		s.policies = []drawgate.Policy{hourly(), {Name: "kept", Limits: []drawgate.Limit{
			drawgate.RollingLimit("rpm", 5, time.Hour),
			drawgate.RollingLimit("bytes", 1_000_000, time.Hour).Of(llm.UnitBytes),
			drawgate.RollingLimit("tpm", 10, time.Hour).Of(llm.UnitTokens),
		}}}
		for i := range s.config.Upstreams {
			if u := &s.config.Upstreams[i]; u.Name == "openai" {
				u.Stored.Policy = "kept"
			}
		}
	}, func(t *testing.T, b *bench) {
		id := b.respond(alice, "")
		file := b.upload(alice, strings.Repeat("x", 10_000))
		b.as(alice, http.MethodGet, "/v1/responses/"+id, "body that nobody reads")
		b.as(alice, http.MethodGet, "/v1/files/"+file+"/content", "")
		b.as(bob, http.MethodGet, "/v1/files/"+file+"/content", "") // it is refused, and not counted
		time.Sleep(2 * time.Minute)
		used := b.used("kept", "account")
		if used["rpm"] != 3 || used["bytes"] < 10_000 || used["bytes"] > 11_000 || used["tpm"] != 0 {
			t.Errorf("used: %v", used)
		}
		u := b.spent()[b.meter("alice", "red", "openai", "stored")]
		if u.Requests != 3 || u.PromptTokens+u.AnswerTokens+u.Micros != 0 {
			t.Errorf("spent: %+v", b.spent())
		}
		b.as(alice, http.MethodGet, "/v1/responses/"+id, "")
		b.as(alice, http.MethodGet, "/v1/responses/"+id, "")
		if status, body := b.as(alice, http.MethodGet, "/v1/responses/"+id, "",
			gateway.HeaderTimeout+": 0"); status != http.StatusTooManyRequests {
			t.Errorf("beyond the limit: %d %s", status, body)
		}
		if err := b.ledger.Close(); err != nil {
			t.Fatal(err)
		}
		reported, err := audit.Spending(t.Context(), []string{dir},
			func(at time.Time) string { return at.UTC().Format(time.DateOnly) })
		if err != nil {
			t.Fatal(err)
		}
		rows, err := spend.Read(t.Context(), b.store, b.money, time.Now().AddDate(0, 0, -2), time.Now(), "")
		if err != nil {
			t.Fatal(err)
		}
		if diff, _ := spend.Compare(rows, reported, b.money); len(diff) > 0 || reported.Calls != 6 {
			t.Errorf("the ledger differs: %+v, %d calls", diff, reported.Calls)
		}
	})
}

// TestStoredWithoutAStore: while the store is unavailable nothing that is stored passes, and the
// log says that it is not written down whose an answer is.
func TestStoredWithoutAStore(t *testing.T) {
	t.Parallel()
	var log syncbuffer.Buffer
	inBubble(t, func(s *setup) {
		keeping(gateway.StoredByKey)(s)
		s.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s.config.Upstreams[0].Models = []gateway.Model{{Name: "*", Policy: "upstream"}}
	}, func(t *testing.T, b *bench) {
		id := b.respond(alice, "")
		conf := b.engine.Config()
		if err := b.engine.Replace(conf); err != nil { // without the policy that knows owners
			t.Fatal(err)
		}
		if status, body := b.as(alice, http.MethodGet, "/v1/responses/"+id,
			""); status != http.StatusServiceUnavailable {
			t.Errorf("got %d %s", status, body)
		}
		b.respond(alice, "")
		if n := strings.Count(log.String(), "it was not written down whose"); n != 1 {
			t.Errorf("%d lines say that an owner was lost: %s", n, log.String())
		}
		if strings.Contains(log.String(), alice) {
			t.Error("the log has a secret")
		}
	})
}

// TestIDsAreReadWhereTheyStand: an answer whose text, or metadata, has another id makes nothing
// else the caller's.
func TestIDsAreReadWhereTheyStand(t *testing.T) {
	t.Parallel()
	const other = "resp_of_bob"
	answer := ""
	inBubble(t, func(s *setup) {
		keeping(gateway.StoredByKey)(s)
	}, func(t *testing.T, b *bench) {
		base := answers(func(r *http.Request) string { return answer })
		h, err := gateway.New(b.engine, b.conf, &gateway.Options{Base: base})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		b.h = h
		for i, text := range []string{
			`{"metadata":{"id":%[2]q,"response":{"id":%[2]q}},"output":[{"id":%[2]q}],"id":%[1]q,"usage":{"input_tokens":1,"output_tokens":1}}`,
			`{"response":{"id":%[2]q},"id":%[1]q}`,
			"data: {\"type\":\"response.created\",\"id\":%[2]q,\"item\":{\"id\":%[2]q},\"response\":{\"metadata\":{\"id\":%[2]q},\"id\":%[1]q}}\n\n" +
				"data: {\"type\":\"response.completed\",\"response\":{\"id\":%[2]q}}\n\n",
		} {
			id := fmt.Sprint("resp_", i)
			answer = fmt.Sprintf(text, id, other)
			b.as(alice, http.MethodPost, "/v1/responses", `{"model":"gpt-4o","max_output_tokens":5,"input":"x"}`)
			if status, body := b.as(alice, http.MethodGet, "/v1/responses/"+id, ""); status != http.StatusOK {
				t.Errorf("%d: one's own: %d %s", i, status, body)
			}
			if status, _ := b.as(alice, http.MethodGet, "/v1/responses/"+other, ""); status != http.StatusNotFound {
				t.Errorf("%d: another one: %d", i, status)
			}
		}
	})
}

// answers is a provider that answers with a text.
type answers func(r *http.Request) string

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	text := a(r)
	kind := "application/json"
	if strings.HasPrefix(text, "data:") {
		kind = "text/event-stream"
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}},
		Body:    io.NopCloser(strings.NewReader(text)),
		Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// TestBackground: a response that is made in the background can be fetched where it is known whose
// it is, and costs what it reserved, whatever its reader is told later.
func TestBackground(t *testing.T) {
	t.Parallel()
	const most = 50 * 10 // millionths of the longest answer
	inBubble(t, func(s *setup) {
		keeping(gateway.StoredByKey)(s)
		s.config.Prices = priced()
	}, func(t *testing.T, b *bench) {
		id := b.respond(alice, `,"background":true`)
		status, body := b.as(alice, http.MethodGet, "/v1/responses/"+id, "")
		if status != http.StatusOK || !strings.Contains(body, `"status":"completed"`) {
			t.Errorf("got %d %s", status, body)
		}
		status, body = b.as(alice, http.MethodPost, "/v1/responses",
			`{"model":"gpt-4o","max_output_tokens":50,"input":"x","background":true,"store":false}`)
		if status != http.StatusBadRequest {
			t.Errorf("one that is not stored: %d %s", status, body)
		}
		time.Sleep(2 * time.Minute)
		if u := b.spent()[b.meter("alice", "red", "openai", "gpt-4o")]; u.Requests != 1 || u.AnswerTokens != 50 ||
			u.Micros < most {
			t.Errorf("%+v is spent, want the longest answer", u)
		}
	})
}

// TestStoredResponseThatFailed: a response that is read may have failed for a quota, long ago, and
// says what it used: that is not the call's that reads it, and pauses nothing.
func TestStoredResponseThatFailed(t *testing.T) {
	t.Parallel()
	answer := `{"id":"resp_1","usage":{"input_tokens":1,"output_tokens":1}}`
	inBubble(t, func(s *setup) {
		keeping(gateway.StoredByKey)(s)
		s.options.Base = answers(func(*http.Request) string { return answer })
	}, func(t *testing.T, b *bench) {
		h, err := gateway.New(b.engine, b.conf, &gateway.Options{
			Base: answers(func(*http.Request) string { return answer }),
			Observer: &outbound.Observer{Called: func(e *outbound.Event) {
				if e.Model == string(llm.OpStored) && (e.Usage != llm.Usage{} || e.Refusal.Meaning != 0 ||
					e.Err != nil) {
					t.Errorf("the call that reads is told as %+v", e)
				}
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		b.h = h
		b.as(alice, http.MethodPost, "/v1/responses", `{"model":"gpt-4o","max_output_tokens":5,"input":"x"}`)
		answer = `{"id":"resp_1","status":"failed","error":{"code":"rate_limit_exceeded","message":"Rate limit reached for gpt-4o ` +
			`in organization org-1 on tokens per min (TPM): Limit 1, Used 1, Requested 1. Please try again in 1h."},` +
			`"usage":{"input_tokens":1000000,"output_tokens":1000000,"total_tokens":2000000}}`
		for range 3 {
			if status, body := b.as(alice, http.MethodGet, "/v1/responses/resp_1", "",
				gateway.HeaderTimeout+": 0"); status != http.StatusOK || body != answer {
				t.Errorf("got %d %s", status, body)
			}
		}
		if used := b.used("upstream", "account"); used["rpm"] != 4 || used[llm.UnitTokens] > 1000 {
			t.Errorf("used: %v", used)
		}
	})
}
