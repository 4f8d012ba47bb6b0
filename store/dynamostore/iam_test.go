package dynamostore_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// post sends something of a kind to a server, as to AWS's IAM, and returns the answer.
func post(t *testing.T, address, kind, body string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=00")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", body, resp.Status, answer, err)
	}
	return answer
}

// asJSON passes calls on to moto. moto sends a denial as XML; DynamoDB sends JSON.
type asJSON struct{}

func (asJSON) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := direct.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		return resp, err
	}
	defer resp.Body.Close()
	var e struct {
		Code    string `xml:"Errors>Error>Code"`
		Message string `xml:"Errors>Error>Message"`
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, xml.Unmarshal(text, &e)); err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	code := map[string]string{
		"AccessDenied":         "AccessDeniedException",
		"InvalidClientTokenId": "UnrecognizedClientException",
	}[e.Code]
	_, body := refuses(code, e.Message)()
	resp.StatusCode, resp.Body, resp.ContentLength = http.StatusBadRequest, io.NopCloser(strings.NewReader(body)),
		int64(len(body))
	return resp, nil
}

// user returns a client with the credentials of a new user, who has one policy; "" means none.
func user(t *testing.T, server *awstest.Server, name, policy string) *dynamodb.Client {
	t.Helper()
	iam := func(action string, more ...string) []byte {
		form := url.Values{"Action": {action}, "Version": {"2010-05-08"}, "UserName": {name}}
		for i := 0; i < len(more); i += 2 {
			form.Set(more[i], more[i+1])
		}
		return post(t, server.URL, "application/x-www-form-urlencoded; charset=utf-8", form.Encode())
	}
	iam("CreateUser")
	if policy != "" {
		iam("PutUserPolicy", "PolicyName", "drawgate", "PolicyDocument", policy)
	}
	var key struct {
		ID     string `xml:"CreateAccessKeyResult>AccessKey>AccessKeyId"`
		Secret string `xml:"CreateAccessKeyResult>AccessKey>SecretAccessKey"`
	}
	if err := xml.Unmarshal(iam("CreateAccessKey"), &key); err != nil || key.ID == "" {
		t.Fatal(key, err)
	}
	o := tableClient(server.URL, asJSON{}).Options()
	o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: key.ID, SecretAccessKey: key.Secret}, nil
	})
	return dynamodb.New(o)
}

// Users with the printed policies can do what these are for, and nothing else. moto stands in for
// IAM; for DynamoDB it compares actions, but not resources.
func TestPolicyIsEnough(t *testing.T) {
	t.Parallel()
	server := awstest.Moto(t)
	resource := regexp.MustCompile(`"Resource": "[^"]*"`)
	policy := func(o dynamostore.PolicyOptions) string {
		text, err := dynamostore.Policy(dynamostore.TableARN("quotas", "eu-central-1", "123456789012"), o)
		if err != nil {
			t.Fatal(err)
		}
		return resource.ReplaceAllString(string(text), `"Resource": "*"`)
	}
	creator := user(t, server, "creator", policy(dynamostore.PolicyOptions{Create: true}))
	program := user(t, server, "program", policy(dynamostore.PolicyOptions{}))
	reader := user(t, server, "reader", policy(dynamostore.PolicyOptions{ReadOnly: true}))
	nobody := user(t, server, "nobody", "")
	post(t, server.URL+"/moto-api/reset-auth", "text/plain", "0") // from now on each call is checked

	if _, _, err := dynamostore.CreateTable(t.Context(), program, "quotas", nil); err == nil ||
		!strings.Contains(err.Error(), "user/program may not call dynamodb:CreateTable") {
		t.Errorf("a program creates a table: %v", err)
	}
	created, findings, err := dynamostore.CreateTable(t.Context(), creator, "quotas",
		&dynamostore.TableOptions{Tags: map[string]string{"team": "search"}})
	if err != nil || !created || len(findings) > 0 {
		t.Errorf("created %t, %+v, %v", created, findings, err)
	}
	for name, c := range map[string]struct {
		client *dynamodb.Client
		want   string
	}{
		"creator": {creator, ""},
		"program": {program, ""},
		"reader":  {reader, "permission permission permission"},
		"nobody":  {nobody, "(permission) (permission) permission permission permission permission (permission)"},
		"unknown": {tableClient(server.URL, asJSON{}), "bad-credentials"},
	} {
		if got := dynamostore.CheckTable(t.Context(), c.client, "quotas"); codes(got) != c.want {
			t.Errorf("%s: got %q, want %q: %+v", name, codes(got), c.want, got)
		}
	}
}
