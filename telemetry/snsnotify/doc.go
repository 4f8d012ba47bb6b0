// Package snsnotify publishes incidents to a topic of Amazon SNS, which tells operators by e-mail,
// SMS, chat or HTTP.
//
//	topic := snsnotify.Topic{ARN: "arn:aws:sns:eu-central-1:123456789012:drawgate"}
//	notifier, err := snsnotify.Open(ctx, topic, nil)
//	...
//	defer notifier.Close()
//	rec := incident.New(&incident.Options{Report: notifier.Notify})
//	defer rec.Close()
//
// A message has a subject for people, an [api.Incident] as JSON, which is the same as GET
// /v1/incidents/{id} and the webhook have, and attributes that the filter policy of a subscription
// can use: severity, upstream, model and meaning.
//
// Messages are sent by a goroutine of the [Notifier], so no caller waits for AWS. AWS Lambda stops
// all goroutines between two invocations: there the handler calls [incident.Recorder.Flush] and
// [Notifier.Flush] before it returns.
package snsnotify
