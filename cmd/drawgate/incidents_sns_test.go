//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/awstest"
)

// The credentials of a gateway that publishes to SNS.
const awsSecret = "wJalrXUtnFEMI0123456789"

// published is what a subscriber of the topic gets.
type published struct {
	Subject, Message string
	incident         api.Incident
}

// newSubscribedTopic makes a topic with a subscriber.
func newSubscribedTopic(t *testing.T, m *awstest.Server) (arn string, got <-chan published) {
	t.Helper()
	messages := make(chan published, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var p published
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &p)
		}
		if err == nil {
			err = json.Unmarshal([]byte(p.Message), &p.incident)
		}
		if err != nil {
			t.Errorf("a subscriber got %s, %v", body, err)
		}
		messages <- p
	}))
	t.Cleanup(s.Close)
	c := sns.New(sns.Options{
		Region: "eu-central-1", BaseEndpoint: &m.URL,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
	topic, err := c.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String("drawgate")})
	if err == nil {
		_, err = c.Subscribe(t.Context(), &sns.SubscribeInput{
			TopicArn: topic.TopicArn, Protocol: aws.String("http"),
			Endpoint: aws.String(s.URL),
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return *topic.TopicArn, messages
}

// snsBench is a gateway's folder and environment, with a topic in its configuration, and a provider
// that quotes.
func snsBench(t *testing.T, m *awstest.Server, arn string) (b bench, provider string) {
	t.Helper()
	b = newBench(t, "PROVIDER_KEY="+providerKey, "ALICE_KEY="+callerKey, "AWS_ACCESS_KEY_ID=AKIDEXAMPLE",
		"AWS_SECRET_ACCESS_KEY="+awsSecret)
	provider = quotingProvider(t)
	text, _, _ := strings.Cut(fmt.Sprintf(quoting, provider, ""), "telemetry:")
	b.write("drawgate.yaml", text+fmt.Sprintf("  listen: 127.0.0.1:0\n  incidents: {sns: {topic: %q, endpoint: %q}}\n",
		arn, m.URL))
	return b, provider
}

// refuse makes a call that the provider refuses, because somebody else has used its quota.
func refuse(t *testing.T, g *daemon, provider string) {
	t.Helper()
	for i, call := range []struct{ url, key string }{
		{provider, providerKey},
		{provider, providerKey},
		{g.public + "/openai", callerKey},
	} {
		want := []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests}[i]
		if got := say(t, call.url, call.key); got != want {
			t.Fatalf("call %d: got %d, want %d; log: %s", i, got, want, g.log)
		}
	}
}

// A gateway whose provider refuses a granted call tells the subscribers of a topic at once, run by
// either command. The message has neither keys nor prompts.
//
// req: A14
func TestGatewayTellsSNS(t *testing.T) {
	t.Parallel()
	m := awstest.Moto(t)
	arn, got := newSubscribedTopic(t, m)
	for _, command := range []string{"gateway", "serve"} {
		b, provider := snsBench(t, m, arn)
		args := []string{command, "--config", "drawgate.yaml", "--admin", "127.0.0.1:0"}
		if command == "serve" {
			args = append(args, "--listen", "127.0.0.1:0")
		}
		g := b.background(args...)
		g.public = g.log.await(t, `gateway listening on (https?://[^"]+)`)
		g.admin = g.log.await(t, `administration at (https?://[^"]+)`)
		refuse(t, g, provider)
		g.shows(`drawgate_sns_messages_total{result="delivered"}`, 1) // SNS answers after the subscriber
		id, p := g.log.await(t, `incident=(\S+)`), <-got
		for p.incident.ID != id { // it is of the gateway before, and came twice
			p = <-got
		}
		if p.incident.Limits == nil || p.incident.Takes == nil || p.incident.Concurrent != 1 ||
			!strings.HasPrefix(p.Subject, "Drawgate: openai refused a call of gpt-4o") {
			t.Errorf("%s: the subscriber got %+v", command, p)
		}
		for _, secret := range []string{callerKey, providerKey, diary, awsSecret} {
			if strings.Contains(p.Message+p.Subject+g.log.String(), secret) {
				t.Errorf("%s: %q is in %s or in %s", command, secret, p.Message, g.log)
			}
		}
		g.kill()
	}
}

// While SNS does not answer, the gateway does. It ends when it is told to, and says which incident
// was not sent.
//
// req: A14
func TestGatewayDoesNotWaitForSNS(t *testing.T) {
	t.Parallel()
	m := awstest.Moto(t)
	b, provider := snsBench(t, m, "arn:aws:sns:eu-central-1:123456789012:drawgate")
	if err := syscall.Kill(m.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	g := b.gateway()
	refuse(t, g, provider)
	id := g.log.await(t, `incident=(\S+)`)
	g.signal(syscall.SIGTERM)
	if got := g.log.await(t, `an incident was not sent to SNS: the process ends" incident=(\S+)`); got != id {
		t.Errorf("incident %s was not sent, want %s", got, id)
	}
	<-g.done
	if code := g.cmd.ProcessState.ExitCode(); code != exitInternal ||
		!strings.Contains(g.log.String(), "incidents that were not sent: 1") {
		t.Errorf("got exit code %d; log: %s", code, g.log)
	}
	g.killed = true // so that its code is not checked again
}
