package pgstore_test

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/pgtest"
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

// TestParametersThatCannotBeRead are refused, and not left out: the store would use the tables of
// another schema.
func TestParametersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, query := range []string{
		"schema=quotas;", "schema=100%", "pool_max_conns=1;", "password_file=/secret%zz",
		"password=se;secret",
	} {
		err := pgstore.CheckURL("postgres://u@host/db?" + query)
		if err == nil {
			t.Errorf("%s is accepted", query)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows a part of it: %v", query, err)
		}
	}
}

// TestListenWithoutTLS: a server that listens without TLS is used for
// notifications, too.
func TestListenWithoutTLS(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	u := "postgres://postgres@" + server.Addr + "/postgres?listen=" + server.Addr
	for _, mode := range []string{"", "&sslmode=prefer", "&sslmode=allow", "&sslmode=disable"} {
		list, err := pgstore.CheckTables(t.Context(), u+mode, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if f.Code == pgstore.CodeListen {
				t.Errorf("%q: %+v", mode, f)
			}
		}
	}
}
