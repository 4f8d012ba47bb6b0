package api_test

import (
	"encoding/json"
	"testing"

	"github.com/drawgate/drawgate/api"
)

// What servers before 1.0 wrote is read, and written in today's words.
func TestRetiredWordsAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		into      any
		old, want string
	}{
		{new(api.Reason), `"away"`, `"unavailable"`},
		{new(api.Reason), `"limited"`, `"limited"`},
		{new(api.Status), `"away"`, `"unavailable"`},
		{new(api.Status), `"of a newer server"`, `"of a newer server"`},
		{new(api.Code), `"store_away"`, `"store_unavailable"`},
		{new(api.Code), `"closing"`, `"closing"`},
	} {
		if err := json.Unmarshal([]byte(c.old), c.into); err != nil {
			t.Errorf("%s: %v", c.old, err)
		}
		if got, err := json.Marshal(c.into); err != nil || string(got) != c.want {
			t.Errorf("%s becomes %s, %v; want %s", c.old, got, err, c.want)
		}
	}
}
