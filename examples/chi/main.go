// Command chi serves an API whose limits are in a file, which is reloaded when it changes.
package main

import (
	"context"
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/httplimit"
)

func main() {
	limits, err := config.Open(context.Background(), "drawgate.yaml", nil)
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.NewByRules(limits.Engine, &httplimit.RuleOptions{Class: limits.Class})
	if err != nil {
		log.Fatal(err)
	}
	r := chi.NewRouter()
	r.Use(limit.Handler)
	r.Get("/search", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("found\n")) })
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", r))
}
