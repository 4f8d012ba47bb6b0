package config

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// secretPrefix is what generated secrets of virtual keys begin with, so that people and scanners of
// files recognize them.
const secretPrefix = "dg_"

// secretBytes is how many random bytes such a secret has.
const secretBytes = 32

// NewSecret returns a random secret for a [VirtualKey], of 256 bits, in letters, digits, - and _.
func NewSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // it never fails
	return secretPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// isSecret reports whether a text looks like one of NewSecret.
func isSecret(text string) bool {
	rest, ok := strings.CutPrefix(text, secretPrefix)
	return ok && len(rest) == base64.RawURLEncoding.EncodedLen(secretBytes)
}

// HashSecret returns the SHA-256 of a secret as a file has it. White space around it is not a part
// of it. The error says what is wrong with it, but shows nothing of it.
func HashSecret(text string) (digits string, err error) {
	secret := strings.TrimSpace(text)
	switch {
	case len(secret) < minSecret:
		return "", fmt.Errorf("config: the secret has fewer than %d bytes: generate a random one", minSecret)
	case len(secret) > maxSecret:
		return "", fmt.Errorf("config: the secret has more than %d bytes", maxSecret)
	case strings.ContainsAny(secret, "\r\n"):
		return "", errors.New("config: the secret has more than one line")
	}
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:]), nil
}
