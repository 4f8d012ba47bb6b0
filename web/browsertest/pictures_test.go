//go:build pictures

package browsertest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestPictures writes the pictures of the documentation. Run it when the page has changed:
//
//	go test -tags pictures -run TestPictures
func TestPictures(t *testing.T) {
	s := lively(t)
	b := newTab(t)
	b.must(chromedp.Do(b.ctx, chromedp.EmulateViewport(1200, 1400)))
	b.visit(s.admin + "/")
	b.shows("#incidents", "the provider says")
	for i := range 20 { // lines that show something
		s.take(fields{"policy": "llm", "key": "team-d", "costs": fields{"tokens": 200 + 10*i}})
		before := b.asked("/v1/usage")
		b.await("document.querySelectorAll('#buckets tbody tr').length > 0")
		for b.asked("/v1/usage") < before+3 {
			b.await("true")
		}
	}
	for _, tokens := range []int{500, 900, 700} { // more than is left
		s.take(fields{"policy": "llm", "key": "team-a", "costs": fields{"tokens": tokens}})
	}
	b.shows("#refusals", "team-a")
	for name, dark := range map[string]bool{"light": false, "dark": true} {
		b.dark(dark)
		picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		b.must(err)
		b.must(os.WriteFile(filepath.Join("../../docs/images", fmt.Sprintf("page-%s.png", name)), picture, 0o644))
	}
}
