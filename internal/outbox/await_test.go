package outbox_test

import (
	"context"
	"testing"

	"github.com/drawgate/drawgate/internal/outbox"
)

// What has ended counts as ended, every time, also if the context has ended as well.
func TestAwait(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan struct{})
	if outbox.Await(ended, done) {
		t.Error("it has not ended")
	}
	close(done)
	for range 100 {
		if !outbox.Await(ended, done) {
			t.Fatal("it has ended")
		}
	}
}
