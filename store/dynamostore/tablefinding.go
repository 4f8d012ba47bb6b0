package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/drawgate/drawgate/internal/pattern"
)

// Finding is something about a table that keeps the store from working, or from working well.
type Finding struct {
	Warning bool   // the store works nevertheless
	Code    string // one of the codes below, for programs
	Message string // what is wrong
	Advice  string // what to do

	err error
}

// The codes of findings.
const (
	CodeNoLogin      = "no-credentials"
	CodeExpiredLogin = "expired-credentials"
	CodeBadLogin     = "bad-credentials"
	CodePermission   = "permission"
	CodeNoTable      = "no-table" // in the region that was asked
	CodeNotActive    = "not-active"
	CodeKeySchema    = "key-schema"
	CodeTTL          = "ttl"      // off, or on another attribute
	CodeCapacity     = "capacity" // little, or used up
	CodeReplicas     = "replicas" // in other regions
	CodeSettings     = "settings" // others than CreateTable was asked for
	CodeUnreachable  = "unreachable"
	CodeFailed       = "failed" // another error of AWS
)

// AWS's codes of some errors. Not all of them have a type in the SDK.
const (
	codeAccessDenied     = "AccessDeniedException"
	codeValidation       = "ValidationException"
	codeUnknownOperation = "UnknownOperationException"
	codeNotFound         = "ResourceNotFoundException"
)

// apiCode returns the code of an answer of AWS; "" for other errors.
func apiCode(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return ""
}

// apiMessage returns the text of an answer of AWS.
func apiMessage(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorMessage()
	}
	return ""
}

// deniedAction and deniedUser find what was denied, and to whom, in AWS's text.
var (
	deniedAction = pattern.New(`not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)`)
	deniedUser   = pattern.New(`User: (arn:\S+)`)
)

// finding says why a call failed, and what to do.
func (t *tableAdmin) finding(ctx context.Context, action string, err error) Finding {
	f := t.classify(ctx, action, err)
	f.err = err
	return f
}

func (t *tableAdmin) classify(ctx context.Context, action string, err error) Finding {
	const keys = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run this where a role gives credentials"
	switch code := apiCode(err); code {
	case codeAccessDenied:
		return denied(action, apiMessage(err))
	case "ExpiredTokenException", "ExpiredToken", "RequestExpired":
		return Finding{
			Code: CodeExpiredLogin, Message: "the credentials have expired",
			Advice: "sign in again (\"aws sso login\"), or take new temporary credentials",
		}
	case "InvalidSignatureException":
		if strings.Contains(apiMessage(err), "Signature expired") ||
			strings.Contains(apiMessage(err), "not yet current") {
			return Finding{
				Code: CodeBadLogin, Message: "this machine's clock differs too much from AWS's",
				Advice: "set the clock",
			}
		}
		return Finding{Code: CodeBadLogin, Message: "the secret key does not belong to the access key", Advice: keys}
	case "UnrecognizedClientException", "InvalidClientTokenId", "InvalidAccessKeyId", "MissingAuthenticationToken",
		"MissingAuthenticationTokenException", "IncompleteSignatureException":
		return Finding{Code: CodeBadLogin, Message: "AWS does not know these credentials (" + code + ")", Advice: keys}
	case "ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded":
		return Finding{
			Warning: true, Code: CodeCapacity,
			Message: fmt.Sprintf("dynamodb:%s is throttled: the capacity is used up", action),
			Advice:  "raise the capacity, or use capacity on demand",
		}
	case codeNotFound:
		return Finding{
			Code: CodeNoTable, Message: fmt.Sprintf("there is no table %s in %s", t.name, t.where(ctx)),
			Advice: "create it with \"drawgate table create\"; if it exists elsewhere, name its region: dynamodb://" +
				t.name + "?region=REGION",
		}
	case "":
		return t.unanswered(ctx, action, err)
	case codeValidation:
		if strings.Contains(apiMessage(err), "does not match the schema") { // the table could not be described
			return Finding{
				Code: CodeKeySchema, Message: fmt.Sprintf("the table's key is not just the partition key %s (type S)",
					KeyAttribute),
				Advice: "a table's key cannot be changed: create another table with \"drawgate table create\"",
			}
		}
		fallthrough
	default:
		return Finding{Code: CodeFailed, Message: fmt.Sprintf("dynamodb:%s failed: %s: %s", action, code,
			apiMessage(err)), Advice: "see DynamoDB's list of errors for this code"}
	}
}

// unanswered is about a call that AWS did not answer.
func (t *tableAdmin) unanswered(ctx context.Context, action string, err error) Finding {
	if _, ok := errors.AsType[*smithyhttp.RequestSendError](err); !ok && ctx.Err() == nil {
		return Finding{
			Code: CodeFailed, Message: fmt.Sprintf("dynamodb:%s failed: %v", action, err),
			Advice: "check the region, the endpoint and AWS's configuration",
		}
	}
	f := Finding{
		Code: CodeUnreachable, Message: "no answer from " + t.where(ctx),
		Advice: "check the network and the region; in a VPC without internet access add a gateway endpoint for DynamoDB",
	}
	_, op := errors.AsType[*net.OpError](err)
	_, dns := errors.AsType[*net.DNSError](err)
	switch {
	case dns:
		f.Message, f.Advice = "there is no server for "+t.where(ctx),
			"check how the region is written, and the name service"
	case op && t.client.Options().BaseEndpoint != nil:
		f.Advice = "start the server, or correct the endpoint"
	}
	return f
}

// where names the region and the endpoint that are asked.
func (t *tableAdmin) where(ctx context.Context) string {
	o := t.client.Options()
	text := "region " + o.Region
	if o.BaseEndpoint != nil {
		return text + " at " + *o.BaseEndpoint
	}
	p := dynamodb.EndpointParameters{
		Region:       &o.Region,
		UseFIPS:      aws.Bool(o.EndpointOptions.UseFIPSEndpoint == aws.FIPSEndpointStateEnabled),
		UseDualStack: aws.Bool(o.EndpointOptions.UseDualStackEndpoint == aws.DualStackEndpointStateEnabled),
	}
	if e, err := o.EndpointResolverV2.ResolveEndpoint(ctx, p); err == nil {
		text += " at " + e.URI.String()
	}
	return text
}

// denied is about a permission that is missing. text is AWS's.
func denied(action, text string) Finding {
	if m := deniedAction().FindStringSubmatch(text); m != nil {
		action = m[1]
	} else {
		action = "dynamodb:" + action
	}
	who := "these credentials"
	if m := deniedUser().FindStringSubmatch(text); m != nil {
		who = m[1]
	}
	f := Finding{
		Code: CodePermission, Message: who + " may not call " + action,
		Advice: "attach the policy that \"drawgate table policy\" prints",
	}
	if strings.Contains(text, "explicit deny") {
		f.Message += ", because a policy denies it explicitly"
		f.Advice = "remove the denial; permissions elsewhere do not help"
	}
	return f
}

// credentials returns a finding if there are none.
func (t *tableAdmin) credentials(ctx context.Context) *Finding {
	p := t.client.Options().Credentials
	if p == nil {
		return nil
	}
	_, err := p.Retrieve(ctx)
	if err == nil {
		return nil
	}
	f := Finding{
		Code: CodeNoLogin, Message: "no credentials are found",
		Advice: "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (any values for a local stand-in), or run this where a role gives credentials",
		err:    err,
	}
	text := strings.ToLower(err.Error())
	switch {
	case strings.Contains(text, "expired"):
		f.Code, f.Message, f.Advice = CodeExpiredLogin, "the credentials have expired",
			"sign in again (\"aws sso login\"), or take new temporary credentials"
	case apiCode(err) != "":
		f.Code, f.Message = CodeBadLogin, "AWS gives no credentials: "+apiCode(err)+": "+apiMessage(err)
	}
	return &f
}

// joined puts parts of a sentence together.
func joined(list []string) string {
	if n := len(list); n > 1 {
		return strings.Join(list[:n-1], ", ") + " and " + list[n-1]
	}
	return strings.Join(list, "")
}
