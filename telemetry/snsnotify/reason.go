package snsnotify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// sendError is why a message was not sent. Its text has nothing of AWS's answer that could be a
// secret: the answer to a wrong signature, for one, quotes the request with its session token.
type sendError struct {
	text  string
	final bool // sending the message again would not help
	err   error
}

func (e *sendError) Error() string { return "snsnotify: " + e.text }

func (e *sendError) Unwrap() error { return e.err }

// remedies say what to do about AWS's error codes. quote says that the answer's text is shown as
// well: it names who may not do what, or what is wrong with the request.
var remedies = []struct {
	codes []string
	quote bool
	text  string
}{
	{
		[]string{"NotFound", "NotFoundException", "ResourceNotFoundException"},
		false,
		"the topic does not exist: check its name, account and region",
	},
	{
		[]string{"AuthorizationError", "AuthorizationErrorException", "AccessDenied", "AccessDeniedException"},
		true,
		forbidden,
	},
	{
		[]string{"InvalidParameter", "InvalidParameterValue", "ValidationError", "InvalidParameterException"},
		true,
		"SNS does not accept the request: check the topic's ARN and the region",
	},
	{
		[]string{"KMSAccessDenied", "KMSAccessDeniedException"},
		false,
		"the topic is encrypted: allow the role of this process kms:GenerateDataKey and kms:Decrypt on the topic's key",
	},
	{
		[]string{
			"KMSDisabled", "KMSDisabledException", "KMSInvalidState", "KMSInvalidStateException", "KMSNotFound",
			"KMSNotFoundException", "KMSOptInRequired",
		},
		false,
		"the key that the topic is encrypted with cannot be used: check it in AWS KMS",
	},
	{
		[]string{
			"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "IncompleteSignature",
			"InvalidSecurity", "MissingAuthenticationToken",
		},
		false,
		"AWS does not accept the credentials: check where they come from (role, profile or environment variables)",
	},
	{
		[]string{"ExpiredToken", "ExpiredTokenException", "RequestExpired"},
		false,
		"the credentials have expired, or this machine's clock is wrong",
	},
}

// forbidden is also what is said of a 403 without a known code, such as a proxy's.
const forbidden = "the role of this process may not publish: allow it sns:Publish on the topic"

// reason explains an error of a call of SNS.
func reason(ctx context.Context, err error, timeout time.Duration) *sendError {
	answer, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		if ctx.Err() != nil {
			return &sendError{text: fmt.Sprintf("SNS has not answered in time, which is at most %v", timeout), err: err}
		}
		return &sendError{text: fmt.Sprintf("SNS cannot be reached: %v", unwrapped(err)), err: err}
	}
	status := 0
	if r, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = r.HTTPStatusCode()
	}
	e := &sendError{err: err, final: status >= 400 && status < 500 && !passing(status, answer.ErrorCode())}
	e.text = fmt.Sprintf("SNS answered %d %s", status, short(answer.ErrorCode()))
	for _, r := range remedies {
		for _, code := range r.codes {
			if code != answer.ErrorCode() {
				continue
			}
			if e.text += ": " + r.text; r.quote {
				e.text += " (" + short(answer.ErrorMessage()) + ")"
			}
			return e
		}
	}
	if status == http.StatusForbidden {
		e.text += ": " + forbidden
	}
	return e
}

// passing reports whether an error of status 4xx can end by itself.
func passing(status int, code string) bool {
	return status == http.StatusTooManyRequests || status == http.StatusRequestTimeout ||
		strings.Contains(code, "Throttl") ||
		strings.Contains(code, "Expired") || code == "RequestLimitExceeded"
}

// maxShown bounds a text of AWS's, in bytes.
const maxShown = 300

func short(text string) string { return ascii(text, maxShown) }

// unwrapped returns the cause of an error that the SDK has wrapped several times.
func unwrapped(err error) error {
	if e, ok := errors.AsType[*smithyhttp.RequestSendError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*smithy.OperationError](err); ok {
		return e.Err
	}
	return err
}

// credentials looks for credentials, because the client's own error for missing ones lists
// everything that it has tried. It asks nobody if there are some already.
func credentials(ctx context.Context, p aws.CredentialsProvider) error {
	if p == nil {
		return nil
	}
	if _, err := p.Retrieve(ctx); err != nil {
		return &sendError{text: "there are no AWS credentials: give this process a role, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", err: err}
	}
	return nil
}
