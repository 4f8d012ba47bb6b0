package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
)

// patience bounds what a test waits for. Nothing is measured by it.
const patience = 3 * time.Minute

// browser is the context of the one browser of all tests.
var browser context.Context

// program is the drawgate that is tested.
var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "browsertest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = dir + "/drawgate"
	if err := needs.Drawgate("../..", program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // the only pages are ours, and the user may be root
		chromedp.UserDataDir(dir+"/profile"),
		chromedp.ModifyCmdFunc(func(cmd *exec.Cmd) { cmd.SysProcAttr = redistest.DieWithParent() }),
	)...)
	defer cancel()
	browser, cancel = chromedp.NewContext(ctx)
	defer cancel()
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintf(os.Stderr, "these tests need Chromium: %v\n", err)
		return 1
	}
	return m.Run()
}

// tab is a tab of the browser, with storage of its own.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp knows the tab by it

	mu       sync.Mutex
	requests []string // URLs, in order
	errors   []string // what the console shows as errors, except answers that are no success
	failures []string // answers that are no success, as the console shows them
}

// open opens a page.
func open(t *testing.T, url string) *tab {
	t.Helper()
	b := newTab(t)
	b.visit(url)
	return b
}

func newTab(t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	b.must(chromedp.Listen(ctx, b.note))
	b.must(chromedp.Do(ctx, chromedp.EmulateViewport(1280, 1000)))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	b.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			b.mu.Lock()
			defer b.mu.Unlock()
			t.Logf("console: %q %q", b.errors, b.failures)
		}
	})
	return b
}

func (b *tab) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// visit goes to a page.
func (b *tab) visit(url string) {
	b.t.Helper()
	b.must(chromedp.Do(b.ctx, chromedp.Navigate(url)))
}

// note notes what the tab does.
func (b *tab) note(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, ev.Request.URL)
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, fmt.Sprintf("%+v", ev.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if ev.Type == runtime.ConsoleAPICalledTypeError || ev.Type == runtime.ConsoleAPICalledTypeWarning {
			b.errors = append(b.errors, fmt.Sprintf("%+v", ev.Args))
		}
	case *log.EventEntryAdded:
		if ev.Entry.Source == log.EntrySourceNetwork {
			b.failures = append(b.failures, ev.Entry.Text+" "+ev.Entry.URL)
		} else if ev.Entry.Level == log.EntryLevelError || ev.Entry.Level == log.EntryLevelWarning {
			b.errors = append(b.errors, ev.Entry.Text)
		}
	}
}

// asked returns how many requests were made for paths that contain a text.
func (b *tab) asked(path string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.requests {
		if strings.Contains(url, path) {
			n++
		}
	}
	return n
}

// quiet checks that the console shows no error, and that no request went elsewhere. Only some
// answers may have been no success.
func (b *tab) quiet(origin string, failures ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errors) > 0 {
		b.t.Errorf("the console shows %q", b.errors)
	}
	for _, url := range b.requests {
		if !strings.HasPrefix(url, origin+"/") {
			b.t.Errorf("a request went to %s", url)
		}
	}
	for _, f := range b.failures {
		known := false
		for _, text := range failures {
			known = known || strings.Contains(f, text)
		}
		if !known {
			b.t.Errorf("the console shows %q", f)
		}
	}
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// await waits until an expression is true.
func (b *tab) await(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && ok {
			return
		}
		if ctx.Err() != nil {
			b.t.Fatalf("it did not become true: %s (%v)\n%s", expression, err, b.text("body"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// text returns what an element shows, or "" if it is not shown.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%s)?.innerText ?? ''", quote(selector)))
}

// shows waits until an element shows all of the texts.
func (b *tab) shows(selector string, texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.await(fmt.Sprintf("(document.querySelector(%s)?.innerText ?? '').includes(%s)", quote(selector), quote(text)))
	}
}

// hides waits until an element is not shown.
func (b *tab) hides(selector string) {
	b.t.Helper()
	b.await(fmt.Sprintf("!document.querySelector(%s)?.checkVisibility()", quote(selector)))
}

// keys presses keys, one after the other.
func (b *tab) keys(keys string) {
	b.t.Helper()
	b.must(chromedp.Do(b.ctx, chromedp.KeyEvent(keys)))
}

// slash presses the key / as a browser gets it: a page that handles it keeps it from being typed.
func (b *tab) slash() {
	b.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{
		input.DispatchKeyEventTypeKeyDown,
		input.DispatchKeyEventTypeKeyUp,
	} {
		p := input.DispatchKeyEventParams{Type: kind, Key: "/", Code: "Slash"}
		if kind == input.DispatchKeyEventTypeKeyDown {
			p.Text = "/"
		}
		_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, p)
		b.must(err)
	}
}

// dark chooses dark or light colours.
func (b *tab) dark(dark bool) {
	b.t.Helper()
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	b.must(err)
}

// quote returns a text as JavaScript.
func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// click clicks an element.
func click(b *tab, selector string) error {
	return chromedp.Do(b.ctx, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}
