package snsnotify_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/incident"
	"github.com/drawgate/drawgate/telemetry/snsnotify"
)

// A function of AWS Lambda sends its messages before it returns, because its process is stopped
// until the next invocation. Here a server of the example takes the place of SNS.
func Example_lambda() {
	aws := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("SNS got:", r.FormValue("Subject"))
		_, _ = io.WriteString(w, accepted)
	}))
	defer aws.Close()
	topic, err := snsnotify.New(client(aws.URL, "id", "secret"), "arn:aws:sns:eu-central-1:123456789012:drawgate", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer topic.Close()
	recorder := incident.New(&incident.Options{Report: topic.Notify})
	defer recorder.Close()

	handler := func(ctx context.Context) {
		defer func() {
			_ = recorder.Flush(ctx) // what was noticed is reported
			_ = topic.Flush(ctx)    // what was reported is sent
		}()
		// Calls that the recorder watches. One of them is refused, and the recorder reports:
		topic.Notify(&api.Incident{
			ID:      "20260701T120000000Z-k3f7q2xa",
			Summary: "openai refused a call of gpt-4.1 for its limit per minute (requests), although our limits had allowed it",
		})
	}
	handler(context.Background())
	fmt.Println("the invocation has ended")
	// Output:
	// SNS got: Drawgate: openai refused a call of gpt-4.1 for its limit per minute (requests)
	// the invocation has ended
}
