//go:build unix

package snsnotify_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/telemetry/snsnotify"
)

// While SNS does not answer, nobody waits for it: Notify returns, what does not fit in the queue is
// dropped, counted and logged, and Close ends. When it answers again, what waited is sent.
func TestStoppedSNSBlocksNobody(t *testing.T) {
	t.Parallel()
	p, r, log := newTopic(t), newResults(), &syncbuffer.Buffer{}
	got := p.subscribe("")
	n := p.open(&snsnotify.Options{
		Queue: 2, Timeout: 3 * time.Second, Attempts: 1 << 20, Backoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Ended: r.add, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err := syscall.Kill(p.moto.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	n.Notify(&api.Incident{ID: "0"})
	r.await(t, snsnotify.Retried) // so the queue is empty
	for _, id := range []string{"1", "2", "3", "4"} {
		n.Notify(&api.Incident{ID: id}) // a call that blocked here would never end
	}
	if r.of(snsnotify.Dropped) != 2 || !strings.Contains(log.String(), "too many are waiting") ||
		!strings.Contains(log.String(), "SNS has not answered in time") {
		t.Errorf("%d were dropped; log: %s", r.of(snsnotify.Dropped), log)
	}
	other := p.open(&snsnotify.Options{CloseTimeout: -1})
	other.Notify(&api.Incident{ID: "lost"})
	if err := other.Close(); err == nil || !strings.Contains(err.Error(), "incidents that were not sent: 1") {
		t.Errorf("Close while SNS does not answer: %v", err)
	}
	if err := syscall.Kill(p.moto.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := n.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{} // an attempt that was cut off may have been accepted as well
	for !seen["0"] || !seen["1"] || !seen["2"] {
		m := next(t, got)
		seen[m.incident(t).ID] = true
	}
}

// Errors say what is wrong and what to do: a topic that is not there, and no permission, as moto
// answers them, and nobody who answers.
func TestErrorsOfSNSSayWhatToDo(t *testing.T) {
	t.Parallel()
	m := awstest.Moto(t)
	id, secret := keyWithoutPermission(t, m)
	root := client(m.URL, "test", "test")
	const wrong = "arn:aws:sns:eu-central-1:123456789012:wrong"
	once := &snsnotify.Options{Attempts: 1, Timeout: patience}
	in := &api.Incident{ID: "ID"}
	err := notifier(t, root, wrong, once).Send(t.Context(), in)
	wantError(t, err,
		"snsnotify: SNS answered 404 NotFound: the topic does not exist: check its name, account and region")

	err = notifier(t, client("http://127.0.0.1:1", "test", "test"), wrong, once).Send(t.Context(), in)
	wantError(t, err, "snsnotify: SNS cannot be reached: ", "127.0.0.1:1: connect: connection refused")

	moto(t, m, "/moto-api/reset-auth", "0") // from here on moto checks permissions
	err = notifier(t, client(m.URL, id, secret), wrong, once).Send(t.Context(), in)
	// moto's form of the code is not AWS's
	wantError(t, err, "snsnotify: SNS answered 403 ",
		": the role of this process may not publish: allow it sns:Publish on the topic")
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error has the secret: %v", err)
	}
}

// keyWithoutPermission makes a user of a moto who may do nothing.
func keyWithoutPermission(t *testing.T, m *awstest.Server) (id, secret string) {
	t.Helper()
	moto(t, m, "/?Action=CreateUser&UserName=nobody&Version=2010-05-08", "")
	text := moto(t, m, "/?Action=CreateAccessKey&UserName=nobody&Version=2010-05-08", "")
	between := func(tag string) string {
		_, rest, _ := strings.Cut(text, "<"+tag+">")
		value, _, ok := strings.Cut(rest, "</"+tag+">")
		if !ok {
			t.Fatalf("no %s in %s", tag, text)
		}
		return value
	}
	return between("AccessKeyId"), between("SecretAccessKey")
}

// moto asks a moto, of the service IAM if it is AWS's API that is asked.
func moto(t *testing.T, m *awstest.Server, path, body string) string {
	t.Helper()
	address, form := m.URL+path, ""
	if at, query, ok := strings.Cut(path, "?"); ok {
		address, body, form = m.URL+at, query, "application/x-www-form-urlencoded"
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if form != "" {
		r.Header.Set("Content-Type", form)
		r.Header.Set("Authorization",
			"AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=00")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", path, resp.StatusCode, text, err)
	}
	return string(text)
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want %q", err, part)
		}
	}
}

// These are answers as AWS's documentation has them.
func TestAnswersOfAWS(t *testing.T) {
	t.Parallel()
	const who = "User: arn:aws:sts::123456789012:assumed-role/app/i-1 is not authorized to perform: SNS:Publish on resource: " + testARN
	for _, c := range []struct {
		answer answer
		want   string
	}{
		{
			answer{http.StatusForbidden, "AuthorizationError", who},
			"403 AuthorizationError: the role of this process may not publish: allow it sns:Publish on the topic (" +
				who + ")",
		},
		{
			answer{http.StatusBadRequest, "InvalidParameter", "Invalid parameter: TopicArn"},
			"400 InvalidParameter: SNS does not accept the request: check the topic's ARN and the region (Invalid parameter: TopicArn)",
		},
		{
			answer{http.StatusBadRequest, "KMSAccessDenied", ""},
			"400 KMSAccessDenied: the topic is encrypted: allow the role of this process kms:GenerateDataKey and kms:Decrypt on the topic's key",
		},
		{
			answer{http.StatusForbidden, "InvalidClientTokenId", ""},
			"403 InvalidClientTokenId: AWS does not accept the credentials: check where they come from (role, profile or environment variables)",
		},
		{
			answer{http.StatusForbidden, "ExpiredToken", ""},
			"403 ExpiredToken: the credentials have expired, or this machine's clock is wrong",
		},
		{answer{http.StatusTeapot, "Other", "may quote anything"}, "418 Other"},
	} {
		s := &script{answers: []answer{c.answer}}
		err := notifier(t, s.client(), testARN, &snsnotify.Options{Attempts: 1}).Send(t.Context(),
			&api.Incident{ID: "ID"})
		if err == nil || err.Error() != "snsnotify: SNS answered "+c.want {
			t.Errorf("%s: got %v, want %s", c.answer.code, err, c.want)
		}
	}
}

// No error has anything of AWS's answer or the SDK's text that may be a secret.
func TestErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	const token = "FwoGZXIvYXdzEBYaDHNlY3JldA"
	quoting := answer{
		http.StatusForbidden, "SignatureDoesNotMatch",
		"The Canonical String for this request should have been 'POST x-amz-security-token:" + token + "'",
	}
	send := func(c *sns.Client) error {
		return notifier(t, c, testARN, &snsnotify.Options{Attempts: 1}).Send(t.Context(), &api.Incident{ID: "ID"})
	}
	s := &script{answers: []answer{quoting}}
	err := send(s.client())
	wantError(t, err,
		"snsnotify: SNS answered 403 SignatureDoesNotMatch: AWS does not accept the credentials: check where they come from")
	if strings.Contains(err.Error(), token) {
		t.Errorf("the error has the token: %v", err)
	}
	none := client("http://sns.test", "", "", func(o *sns.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("no role; " + token)
		})
	})
	err = send(none)
	wantError(t, err, "snsnotify: there are no AWS credentials: give this process a role, or set AWS_PROFILE")
	if strings.Contains(err.Error(), token) {
		t.Errorf("the error has the token: %v", err)
	}
	var api interface{ ErrorCode() string }
	if err := send((&script{answers: []answer{quoting}}).client()); !errors.As(err, &api) ||
		api.ErrorCode() != "SignatureDoesNotMatch" {
		t.Errorf("the error of AWS is not in %v", err)
	}
}
