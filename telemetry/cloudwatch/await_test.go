package cloudwatch

import (
	"context"
	"testing"
)

// What has ended counts as ended, every time, also if the context has ended as well.
func TestAwait(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan struct{})
	if await(ended, done) {
		t.Error("it has not ended")
	}
	close(done)
	for range 100 {
		if !await(ended, done) {
			t.Fatal("it has ended")
		}
	}
}
