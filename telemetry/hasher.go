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

// Hasher hides keys: it shows a key always as the same 12 hexadecimal digits. Nobody can find the
// key from them without knowing the salt. They are the start of HMAC-SHA256 over tenant and name,
// so a client has the same digits under every policy. It is safe for concurrent use.
type Hasher struct{ salt []byte }

// NewHasher returns a Hasher with that salt. With an empty salt a random one is made; then the
// digits cannot be compared with those of other processes, nor with those after a restart. To
// compare logs and metrics, give all processes the same secret salt of at least 16 bytes.
func NewHasher(salt []byte) *Hasher {
	if len(salt) > 0 {
		return &Hasher{salt: append([]byte(nil), salt...)}
	}
	s := make([]byte, 32)
	_, _ = rand.Read(s) // never fails
	return &Hasher{salt: s}
}

// Key returns the 12 digits of a key's tenant and name. They do not depend on the policy.
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

// rawKey returns a key as it is: its name, after its tenant if it has one. The result is false for
// a key that cannot be a label's value.
func rawKey(k drawgate.Key) (string, bool) {
	s := k.Name
	if k.Tenant != "" {
		s = k.Tenant + "/" + k.Name
	}
	return s, len(s) <= maxLabel && utf8.ValidString(s) && s != other
}
