package server

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
)

// token is what a client receives for a reservation. It has everything that is needed to settle it,
// so that any replica can, even after a restart.
//
// It is not signed: a client that may settle may also take. A forged token can end an open
// reservation if its ID is guessed. If the ID is not open, it changes nothing: use beyond an
// estimate is charged only for reservations that this process gave out and remembers.
type token struct {
	Version int            `json:"v"`
	ID      string         `json:"i"`
	Grant   drawgate.Grant `json:"g"`
	End     int64          `json:"e"` // when the holder must have stopped, in Unix ms
	Buckets []api.Bucket   `json:"b"` // with the costs of the take
}

const tokenVersion = 2 // 1 had no grant

// maxToken is the maximum length of a token, in bytes: the client sends it back in a body, with
// other fields.
const maxToken = api.MaxBody / 2

var (
	errToken        = errors.New("not a reservation token: give the value from the take's answer, unchanged")
	errTokenVersion = errors.New("the reservation token is from another version of Drawgate, and cannot be settled here: its hold ends by itself, and counts as used")
)

func newToken(id string, grant drawgate.Grant, end time.Time, buckets []api.Bucket) string {
	return base64.RawURLEncoding.EncodeToString(encode(token{
		Version: tokenVersion, ID: id, Grant: grant,
		End: end.UnixMilli(), Buckets: buckets,
	}))
}

func parseToken(text string) (token, error) {
	var t token
	body, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return t, errToken
	}
	if checkArraySizes(body) != nil {
		return t, errToken
	}
	if err := json.Unmarshal(body, &t); err != nil || t.ID == "" || len(t.Buckets) == 0 {
		return t, errToken
	}
	if t.Version != tokenVersion {
		return t, errTokenVersion
	}
	if t.Grant == 0 {
		return t, errToken
	}
	return t, nil
}
