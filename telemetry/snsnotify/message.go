package snsnotify

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/drawgate/drawgate/api"
)

// Bounds of a message. SNS takes 256 KiB, attributes included, and a subject of 100 characters.
const (
	maxMessage   = 250_000 // bytes
	maxSubject   = 99
	maxAttribute = 256 // bytes
	maxText      = 500 // bytes of a text in an incident that was shortened as much as possible
)

// input returns what is published for an incident.
func input(topic string, in *api.Incident) (*sns.PublishInput, error) {
	body, shortened, err := document(in)
	if err != nil {
		return nil, err
	}
	p := &sns.PublishInput{
		TopicArn: &topic, Subject: aws.String(subject(in)), Message: &body,
		MessageAttributes: map[string]types.MessageAttributeValue{},
	}
	put := func(name, value string) {
		if value = ascii(value, maxAttribute); value != "" {
			p.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
		}
	}
	put("severity", in.Severity)
	put("upstream", in.Upstream)
	put("model", in.Model)
	put("meaning", in.Meaning)
	if shortened {
		put("shortened", "true")
	}
	return p, nil
}

// subject returns one line for people. What all incidents have in common is left out.
func subject(in *api.Incident) string {
	what, _, _ := strings.Cut(in.Summary, ", although ")
	return ascii("Drawgate: "+cmp.Or(what, "incident "+in.ID), maxSubject)
}

// ascii returns a text as printable ASCII of at most that many bytes.
func ascii(text string, most int) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r == '…':
			return '.'
		case r < ' ' || r > '~':
			return '?'
		}
		return r
	}, text)
	if len(clean) > most {
		clean = clean[:most-3] + "..."
	}
	return clean
}

// document returns an incident as JSON, indented because people read it in e-mails. If it is too
// long, the oldest calls are left out first, and what is needed least next.
func document(in *api.Incident) (body string, shortened bool, err error) {
	short := *in
	for {
		text, err := json.MarshalIndent(&short, "", " ")
		if err != nil || len(text) <= maxMessage {
			return string(text), shortened, err
		}
		shortened = true
		switch {
		case len(short.Takes) > 0:
			short.Takes = short.Takes[(len(short.Takes)+1)/2:] // the newest is the last
		case short.Now != nil:
			short.Now = nil
		case len(short.Limits) > 0:
			short.Limits = short.Limits[:len(short.Limits)/2]
		default:
			short = essence(in)
		}
	}
}

// essence returns the fields of an incident that have a bound, with their texts cut off.
func essence(in *api.Incident) api.Incident {
	e := api.Incident{
		ID: cut(in.ID), At: in.At, Instance: cut(in.Instance), Severity: cut(in.Severity), Upstream: cut(in.Upstream),
		Model:   cut(in.Model),
		Meaning: cut(in.Meaning), Summary: cut(in.Summary), Count: in.Count, Last: in.Last, Until: in.Until,
		NotPaused: in.NotPaused,
		Status:    in.Status, Reason: cut(in.Reason), Fallback: in.Fallback, Concurrent: in.Concurrent,
		Call: api.IncidentTake{
			Granted: in.Call.Granted, Sent: in.Call.Sent, Answered: in.Call.Answered, Model: cut(in.Call.Model),
			Priority: in.Call.Priority,
			QueuedMS: in.Call.QueuedMS, Limit: cut(in.Call.Limit), Remaining: in.Call.Remaining,
			Outcome: cut(in.Call.Outcome),
		},
	}
	for _, d := range in.Diagnosis[:min(len(in.Diagnosis), 3)] {
		e.Diagnosis = append(e.Diagnosis, cut(d))
	}
	return e
}

// cut returns the beginning of a text.
func cut(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
