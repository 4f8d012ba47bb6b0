package pgstore_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/store/pgstore"
)

// TestPasswordsThatAreNotEscaped: a character of a password that ends the host makes something else
// of the rest, which no error shows, neither now nor when the store connects.
func TestPasswordsThatAreNotEscaped(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://u:12?secret@host/db", "postgres://u:12?secret=x@host/db", "postgres://u:12/secret@host/db",
		"postgres://u:12#secret@host/db", "postgres://u:1@host/secret@host/db", "postgres://u:1@x?secret@host/db",
	} {
		err := pgstore.CheckURL(url)
		if err == nil {
			t.Errorf("%s is accepted", url)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the password: %v", url, err)
		}
	}
	for _, url := range []string{
		"postgres://u:a%2Fb%40c@host/a%40b", "postgres:///db?host=h&user=a@b", "postgres://u@host/db?options=-c%20a.b%3D@",
	} {
		if err := pgstore.CheckURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
