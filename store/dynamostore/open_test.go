package dynamostore_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]dynamostore.Location{
		"dynamodb://quotas":                     {Table: "quotas"},
		"dynamodb://Quotas_2.a-b/":              {Table: "Quotas_2.a-b"},
		"dynamodb://quotas?region=eu-central-1": {Table: "quotas", Region: "eu-central-1"},
		"dynamodb://quotas?endpoint=http://127.0.0.1:8000&region=local": {
			Table: "quotas", Region: "local",
			Endpoint: "http://127.0.0.1:8000",
		},
		"dynamodb://quotas?endpoint=https%3A%2F%2F[::1]%3A8000/x": {
			Table:    "quotas",
			Endpoint: "https://[::1]:8000/x",
		},
	} {
		got, err := dynamostore.ParseURL(text)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := dynamostore.ParseURL(got.String()); err != nil || again != got {
			t.Errorf("%s: written as %s, which is %+v, %v", text, got, again, err)
		}
	}
}

// A wrong URL is refused with what to write instead, and without the values in it, which may be
// secrets.
func TestParseURLRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", "is not of the form dynamodb://TABLE?region=REGION"},
		{"quotas", "is not of the form"},
		{"redis://quotas", "is not of the form"},
		{"dynamodb://%zz", "is not of the form"},
		{"dynamodb:quotas", "names no table; write dynamodb://TABLE?region=REGION, such as"},
		{"dynamodb://", "names no table"},
		{"dynamodb:///quotas", "names no table"},
		{"dynamodb://ab", "has a table name that DynamoDB does not allow; use 3 to 255 letters"},
		{"dynamodb://quotas:8000", "has a table name"},
		{"dynamodb://hunter2%20/", "is not of the form"},
		{"dynamodb://AKIA:hunter2@quotas", "contains credentials; leave them out"},
		{"dynamodb://quotas/hunter2", "has something after the table"},
		{"dynamodb://quotas#hunter2", "has something after the table"},
		{"dynamodb://quotas?regoin=x", "has an unknown parameter regoin; there are region and endpoint"},
		{"dynamodb://quotas?Hunter2=x", "has an unknown parameter; there are"},
		{"dynamodb://quotas?region", "does not give its region exactly once"},
		{"dynamodb://quotas?region=a&region=b", "does not give its region exactly once"},
		{"dynamodb://quotas?region=eu%20hunter2", "names a region that cannot exist"},
		{"dynamodb://quotas?region=evil.example/", "names a region that cannot exist"},
		{"dynamodb://quotas?region=%zz", "has parameters that cannot be read"},
		{"dynamodb://quotas?region=a;endpoint=b", "has parameters that cannot be read"},
		{
			"dynamodb://quotas?endpoint=127.0.0.1:8000",
			"has an endpoint that is not the http:// or https:// URL of a server",
		},
		{"dynamodb://quotas?endpoint=ftp://h", "has an endpoint"},
		{"dynamodb://quotas?endpoint=http://:8000", "has an endpoint"},
		{"dynamodb://quotas?endpoint=http://u:hunter2@h", "has an endpoint"},
		{"dynamodb://quotas?endpoint=http://h/?hunter2", "has an endpoint"},
		{"dynamodb://quotas?endpoint=http://h%23hunter2", "has an endpoint"},
		{"dynamodb://quotas?endpoint=http://a&endpoint=http://b/hunter", "does not give its endpoint exactly once"},
	} {
		_, err := dynamostore.ParseURL(c.text)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(strings.ToLower(err.Error()), "hunter") {
			t.Errorf("%s: got %v, want %q", c.text, err, c.want)
		}
		if _, err := dynamostore.Open(t.Context(), c.text, nil); err == nil {
			t.Errorf("%s can be opened", c.text)
		}
	}
}

// Whatever is accepted names a table and a server that there can be, and is written as it was read.
func FuzzParseURL(f *testing.F) {
	f.Add("dynamodb://quotas?region=eu-central-1&endpoint=http://127.0.0.1:8000")
	f.Add("dynamodb://a:b@quotas?x=y#z")
	table := regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := dynamostore.ParseURL(text)
		if err != nil {
			if _, ok := errors.AsType[*dynamostore.URLError](err); !ok || l != (dynamostore.Location{}) {
				t.Errorf("%q: %+v, %v", text, l, err)
			}
			return
		}
		if !table.MatchString(l.Table) || strings.ContainsAny(l.Region, "/.:@") ||
			l.Endpoint != "" && !strings.HasPrefix(strings.ToLower(l.Endpoint), "http") {
			t.Errorf("%q: %+v", text, l)
		}
		if again, err := dynamostore.ParseURL(l.String()); err != nil || again != l {
			t.Errorf("%q: %+v is written as %s, which is %+v, %v", text, l, l, again, err)
		}
	})
}

// isolate hides what the machine's user has configured of AWS. It returns a folder for files.
func isolate(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return dir
}

// clientOf returns the client of a URL.
func clientOf(t *testing.T, url string) *dynamodb.Client {
	t.Helper()
	l, err := dynamostore.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dynamostore.Client(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// holds checks the region and the access key of a client.
func holds(t *testing.T, c *dynamodb.Client, region, key string) {
	t.Helper()
	got, err := c.Options().Credentials.Retrieve(t.Context())
	if err != nil || c.Options().Region != region || got.AccessKeyID != key {
		t.Errorf("region %q, key %q, %v, want %q and %q", c.Options().Region, got.AccessKeyID, err, region, key)
	}
}

// The region and the credentials come from where AWS's own tools look; the URL's region wins.
func TestClientUsesTheEnvironment(t *testing.T) {
	dir := isolate(t)
	_, err := dynamostore.Client(t.Context(), dynamostore.Location{Table: "quotas"})
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(),
		"no region is known: add ?region=REGION to the URL, or set AWS_REGION") {
		t.Errorf("without a region: %v", err)
	}
	if got := dynamostore.CheckTable(t.Context(), clientOf(t, "dynamodb://quotas?region=eu-west-1"),
		"quotas"); codes(got) != "no-credentials" {
		t.Errorf("without credentials: %+v", got)
	}

	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config", "[default]\nregion = eu-north-1\n[profile other]\nregion = sa-east-1\n")
	write("credentials",
		"[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = hunter2\n[other]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = hunter2\n")
	holds(t, clientOf(t, "dynamodb://quotas"), "eu-north-1", "AKIADEFAULT")
	t.Setenv("AWS_PROFILE", "other")
	holds(t, clientOf(t, "dynamodb://quotas"), "sa-east-1", "AKIAOTHER")
	t.Setenv("AWS_PROFILE", "missing")
	if _, err := dynamostore.Client(t.Context(), dynamostore.Location{Table: "quotas"}); !errors.Is(err,
		store.ErrInvalid) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a profile that is not there: %v", err)
	}
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_REGION", "us-west-2")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	holds(t, clientOf(t, "dynamodb://quotas"), "us-west-2", "AKIAENV")
	holds(t, clientOf(t, "dynamodb://quotas?region=eu-central-1"), "eu-central-1", "AKIAENV")

	for _, l := range []dynamostore.Location{
		{Table: "a"},
		{Table: "quotas", Region: "a/b"},
		{Table: "quotas", Region: "x", Endpoint: "host:8000"},
	} {
		if _, err := dynamostore.Client(t.Context(), l); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

// A client sends each call once, whatever the environment says about attempts, to the endpoint of
// the URL or else of the environment.
func TestClientSendsCallsOnce(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	t.Setenv("AWS_MAX_ATTEMPTS", "7")
	t.Setenv("AWS_RETRY_MODE", "adaptive")
	calls := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls <- r.Host
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	for _, c := range []struct{ url, environ string }{
		{"dynamodb://quotas?region=local&endpoint=" + server.URL, ""},
		{"dynamodb://quotas?region=local&endpoint=" + server.URL, "http://127.0.0.1:1"},
		{"dynamodb://quotas?region=local", server.URL},
	} {
		t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", c.environ)
		_, err := clientOf(t, c.url).DescribeTable(t.Context(),
			&dynamodb.DescribeTableInput{TableName: aws.String("quotas")})
		if err == nil || len(calls) != 1 {
			t.Errorf("%+v: %d calls, %v, want one", c, len(calls), err)
		}
		for len(calls) > 0 {
			<-calls
		}
	}
}

// A proxy's own authority can be named as for AWS's tools.
func TestClientTrustsTheEnvironmentsAuthority(t *testing.T) {
	dir := isolate(t)
	path := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(path, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", path)
	if _, err := dynamostore.Client(t.Context(), dynamostore.Location{Table: "quotas", Region: "local"}); err == nil ||
		!strings.Contains(err.Error(), "CA bundle") {
		t.Errorf("got %v, want an error about the bundle", err)
	}
}
