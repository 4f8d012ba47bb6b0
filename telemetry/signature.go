package telemetry

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SignatureHeader carries the signature of a webhook call: "t=<Unix seconds>,v1=<hexadecimal
// digits>", where v1 is HMAC-SHA256, with the secret as key, over the digits of t, a full stop, and
// the body as it was sent.
const SignatureHeader = "Drawgate-Signature"

// ErrSignature means that a webhook call was not signed with the secret, or was signed too long
// ago.
var ErrSignature = errors.New("telemetry: the signature of the webhook call is not valid")

// maxSignature bounds the header, in bytes.
const maxSignature = 1024

// Sign returns the value of [SignatureHeader] for a body that is sent at that time.
func Sign(secret, body []byte, at time.Time) string {
	t := strconv.FormatInt(at.Unix(), 10)
	return "t=" + t + ",v1=" + hex.EncodeToString(digest(secret, t, body))
}

func digest(secret []byte, t string, body []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(t))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return mac.Sum(nil)
}

// Verify checks a received webhook call: header must be the signature of body under secret, made at
// most tolerance before or after now (5 minutes allow for most clocks). The error is
// [ErrSignature]. Unknown parts of the header are ignored. Of several v1 one match is enough, so
// that a secret can be changed.
func Verify(secret, body []byte, header string, now time.Time, tolerance time.Duration) error {
	if len(header) > maxSignature {
		return fmt.Errorf("%w: the header has %d bytes", ErrSignature, len(header))
	}
	t, signed := "", false
	for part := range strings.SplitSeq(header, ",") {
		if name, value, _ := strings.Cut(strings.TrimSpace(part), "="); name == "t" {
			t = value
		}
	}
	at, err := strconv.ParseInt(t, 10, 64)
	if err != nil || at < 0 || strconv.FormatInt(at, 10) != t {
		return fmt.Errorf("%w: there is no time in the header", ErrSignature)
	}
	want := digest(secret, t, body)
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if got, err := hex.DecodeString(value); name == "v1" && err == nil && hmac.Equal(got, want) {
			signed = true
		}
	}
	if !signed {
		return fmt.Errorf("%w: it was made with a different secret, or for a different body", ErrSignature)
	}
	if age := now.Sub(time.Unix(at, 0)); age.Abs() > tolerance {
		return fmt.Errorf("%w: it was made at %s, more than %v from now", ErrSignature,
			time.Unix(at, 0).UTC().Format(time.RFC3339), tolerance)
	}
	return nil
}
