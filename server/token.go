package server

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	"github.com/drawgate/drawgate/api"
)

// token is what a client is given of a reservation. It holds all that is needed to settle it, so that any replica can, even after a restart.
//
// It is not signed: whoever may settle may also take, and a token that was made up names an id that is not open.
type token struct {
	Version int          `json:"v"`
	ID      string       `json:"i"`
	End     int64        `json:"e"` // when the holder must have stopped, in Unix ms
	Buckets []api.Bucket `json:"b"` // with the costs that were asked
}

const tokenVersion = 1

var errToken = errors.New("not a reservation token")

func newToken(id string, end time.Time, buckets []api.Bucket) string {
	body, err := json.Marshal(token{Version: tokenVersion, ID: id, End: end.UnixMilli(), Buckets: buckets})
	if err != nil { // strings and integers can always be written
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(body)
}

func parseToken(text string) (token, error) {
	var t token
	body, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return t, errToken
	}
	if err := json.Unmarshal(body, &t); err != nil || t.ID == "" || len(t.Buckets) == 0 {
		return t, errToken
	}
	if t.Version != tokenVersion {
		return t, errors.New("a reservation token of another version")
	}
	return t, nil
}
