package telemetry_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate/telemetry"
)

// FuzzVerify checks that only a header that was made with the secret is valid, and that none
// crashes a receiver.
func FuzzVerify(f *testing.F) {
	now, body := time.Unix(1_800_000_000, 0), []byte("{}")
	good := telemetry.Sign(secret, body, now)
	for _, seed := range []string{
		good, "t=1,v1=00", "t=-1", "v1=zz,t=", "=,=", "t=9223372036854775807,v1=aa",
		good + "," + good,
	} {
		f.Add(seed, "{}")
	}
	f.Fuzz(func(t *testing.T, header, text string) {
		err := telemetry.Verify(secret, []byte(text), header, now, time.Minute)
		if err == nil && text != string(body) {
			t.Errorf("%q is valid for %q", header, text)
		}
		if err := telemetry.Verify([]byte("another secret, of whatever size"), []byte(text), header, now,
			time.Minute); err == nil {
			t.Errorf("%q is valid for another secret", header)
		}
	})
}
