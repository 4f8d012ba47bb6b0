package telemetry

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/drawgate/drawgate"
)

// hashLen is how many hexadecimal digits of a key's hash are shown: 48 bits tell a million keys
// apart.
const hashLen = 12

// Hasher hides keys: it shows the same key always by the same 12 hexadecimal digits, from which
// nobody can find the key who does not know the salt. They are the start of HMAC-SHA256 over tenant
// and name, so that a client has the same ones under every policy. It is safe for concurrent use.
type Hasher struct{ salt []byte }

// NewHasher returns a Hasher with that salt. With an empty salt a random one is made, and the
// digits mean nothing to other processes, nor to this one after a restart: give all processes one
// secret salt of at least 16 bytes to compare their logs and metrics.
func NewHasher(salt []byte) *Hasher {
	if len(salt) > 0 {
		return &Hasher{salt: append([]byte(nil), salt...)}
	}
	s := make([]byte, 32)
	_, _ = rand.Read(s) // never fails
	return &Hasher{salt: s}
}

// Key returns the 12 digits of a key's tenant and name. The policy has no part in them.
func (h *Hasher) Key(k drawgate.Key) string {
	mac := hmac.New(sha256.New, h.salt)
	mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(k.Tenant))))
	mac.Write([]byte(k.Tenant))
	mac.Write([]byte(k.Name))
	return hex.EncodeToString(mac.Sum(nil))[:hashLen]
}

// maxLabel bounds a label's value, in bytes.
const maxLabel = 128

// label makes the name of a policy or limit fit for a label, which must be valid UTF-8.
func label(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxLabel)], "\uFFFD") }

// rawKey shows a key as it is: its name, after its tenant if it has one. It is false for a key that
// is no label's value.
func rawKey(k drawgate.Key) (string, bool) {
	s := k.Name
	if k.Tenant != "" {
		s = k.Tenant + "/" + k.Name
	}
	return s, len(s) <= maxLabel && utf8.ValidString(s) && s != other
}
