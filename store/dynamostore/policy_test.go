package dynamostore_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// allowed returns the actions of a policy, sorted, and checks the rest of it.
func allowed(t *testing.T, arn string, o dynamostore.PolicyOptions) (actions []string) {
	t.Helper()
	text, err := dynamostore.Policy(arn, o)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Version   string
		Statement []struct {
			Sid, Effect, Resource string
			Action                []string
		}
	}
	if err := json.Unmarshal(text, &p); err != nil || p.Version != "2012-10-17" {
		t.Fatalf("%s: %v", text, err)
	}
	sid := regexp.MustCompile(`^[A-Za-z0-9]+$`)
	for _, s := range p.Statement {
		if !sid.MatchString(s.Sid) || s.Effect != "Allow" || s.Resource != arn || len(s.Action) == 0 {
			t.Errorf("%+v", s)
		}
		for _, a := range s.Action {
			actions = append(actions, strings.TrimPrefix(a, "dynamodb:"))
		}
	}
	slices.Sort(actions)
	return actions
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	arn := dynamostore.TableARN("quotas", "eu-central-1", "123456789012")
	for _, c := range []struct {
		o    dynamostore.PolicyOptions
		want string
	}{
		{dynamostore.PolicyOptions{}, "BatchGetItem DeleteItem DescribeTable DescribeTimeToLive GetItem PutItem Scan UpdateItem"},
		{dynamostore.PolicyOptions{ReadOnly: true}, "BatchGetItem DescribeTable DescribeTimeToLive GetItem Scan"},
		{
			dynamostore.PolicyOptions{Create: true},
			"BatchGetItem CreateTable DeleteItem DescribeTable DescribeTimeToLive GetItem PutItem Scan TagResource UpdateItem UpdateTimeToLive",
		},
	} {
		if diff := cmp.Diff(strings.Fields(c.want), allowed(t, arn, c.o)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.o, diff)
		}
	}
	for want, got := range map[string]string{
		"arn:aws:dynamodb:eu-central-1:123456789012:table/quotas": arn,
		"arn:aws:dynamodb:*:*:table/quotas":                       dynamostore.TableARN("quotas", "", ""),
		"arn:aws-cn:dynamodb:cn-north-1:*:table/quotas": dynamostore.TableARN("quotas", "cn-north-1",
			""),
		"arn:aws-us-gov:dynamodb:us-gov-west-1:123456789012:table/quotas": dynamostore.TableARN("quotas",
			"us-gov-west-1", "123456789012"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		allowed(t, got, dynamostore.PolicyOptions{})
	}
	for _, arn := range []string{
		"", "quotas", "arn:aws:s3:::quotas", "arn:aws:dynamodb:eu-central-1:12:table/quotas",
		"arn:aws:dynamodb:eu-central-1:123456789012:table/*", arn + "/index/x",
	} {
		if _, err := dynamostore.Policy(arn, dynamostore.PolicyOptions{}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", arn, err)
		}
	}
}

// The policy allows each operation that this package calls. The actions of a transaction are those
// of its parts.
func TestPolicyAllowsEachCall(t *testing.T) {
	t.Parallel()
	all := allowed(t, dynamostore.TableARN("quotas", "", ""), dynamostore.PolicyOptions{Create: true})
	input := regexp.MustCompile(`dynamodb\.(\w+)Input\b`)
	parts := map[string][]string{
		"TransactWriteItems": {"PutItem", "UpdateItem", "DeleteItem"}, "TransactGetItems": {"GetItem"},
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range input.FindAllStringSubmatch(string(text), -1) {
			found++
			actions := parts[m[1]]
			if actions == nil {
				actions = m[1:]
			}
			for _, action := range actions {
				if !slices.Contains(all, action) {
					t.Errorf("%s calls %s, for which the policy does not allow %s", f, m[1], action)
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d calls were found", found)
	}
}
