package fiberlimit_test

import (
	"bufio"
	"net"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	recovery "github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/httplimit/fiberlimit"
	"github.com/drawgate/drawgate/httplimit/httplimittest"
)

// TestFiber holds fiber against what every adapter promises, as far as it can know: it is not told
// that a client has gone.
func TestFiber(t *testing.T) {
	t.Parallel()
	httplimittest.Run(t, httplimittest.Harness{Serve: serve, Deaf: true})
}

func serve(t *testing.T, limit *httplimit.Middleware, routes []httplimittest.Route) string {
	t.Helper()
	app := fiber.New()
	app.Use(recovery.New())
	for _, r := range routes {
		app.All(strings.NewReplacer("{", ":", "}", "").Replace(r.Pattern), fiberlimit.Middleware(limit), handler(r))
	}
	return listen(t, app)
}

func listen(t *testing.T, app *fiber.App) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

func handler(r httplimittest.Route) fiber.Handler {
	return func(c fiber.Ctx) error {
		ctx := c.Context()
		if !r.Streams {
			r.Serve(&httplimittest.Call{Context: ctx, Write: func(s string) { _, _ = c.WriteString(s) }})
			return nil
		}
		return c.SendStreamWriter(func(w *bufio.Writer) {
			r.Serve(&httplimittest.Call{
				Context: ctx, Write: func(s string) { _, _ = w.WriteString(s) },
				Flush: func() { _ = w.Flush() },
			})
		})
	}
}
