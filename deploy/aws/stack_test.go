package aws_test

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// metrics are those that Drawgate reports to CloudWatch.
var metrics = []string{
	"RateLimiterAcquisitionFailures", "RateLimiterAcquisitionLatency", "RateLimiterConditionalWriteFailures",
	"RateLimiterFallbackActivated",
	"RateLimiterProviderRefusals", "RateLimiterStoreLatency", "RateLimiterStoreRetries", "RateLimiterStoreThrottled",
	"RateLimiterTokensAcquired",
	"RateLimiterTokensAvailable",
}

// variants are parameters that lead to all resources and branches of the template.
var variants = []map[string]string{
	{},
	{
		"TableName": "my.buckets", "BillingMode": "PROVISIONED", "PointInTimeRecovery": "true",
		"DeletionProtection": "true", "Email": "ops@example.com",
		"Namespace": "Mine", "RequestsPerMinuteLeft": "0", "TokensPerMinuteLeft": "0", "RequestsPerDayLeft": "0",
		"ThrottledMinutes": "5", "ListBuckets": "true", "CreateRole": "lambda",
	},
}

// CloudFormation's own linter has nothing to say.
func TestTemplateHasNoFindings(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), awstest.CFNLint(t), "--include-checks", "I", "--",
		path).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// cloud is a moto that is asked over plain HTTP.
type cloud struct {
	t   *testing.T
	url string
}

// query calls an action of a service with the protocol Query. answer may be nil.
func (c *cloud) query(service, version, action string, params map[string]string, answer any) {
	c.t.Helper()
	form := url.Values{"Action": {action}, "Version": {version}}
	for k, v := range params {
		form.Set(k, v)
	}
	text := c.post(service, strings.NewReader(form.Encode()),
		http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
	if answer == nil {
		return
	}
	if err := xml.Unmarshal(text, answer); err != nil {
		c.t.Fatalf("%s: %v: %s", action, err, text)
	}
}

// dynamo calls an action of DynamoDB.
func (c *cloud) dynamo(action string, params map[string]any, answer any) {
	c.t.Helper()
	body, err := json.Marshal(params)
	if err != nil {
		c.t.Fatal(err)
	}
	text := c.post("dynamodb", strings.NewReader(string(body)),
		http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "X-Amz-Target": {"DynamoDB_20120810." + action}})
	if err := json.Unmarshal(text, answer); err != nil {
		c.t.Fatalf("%s: %v: %s", action, err, text)
	}
}

func (c *cloud) post(service string, body io.Reader, header http.Header) []byte {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, body)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header = header
	r.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential=test/20260101/eu-central-1/"+service+"/aws4_request, SignedHeaders=host, Signature=00")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s: %d %s %v", service, resp.StatusCode, text, err)
	}
	return text
}

// newCloud makes the stack in a moto. It returns the outputs.
func newCloud(t *testing.T, params map[string]string) (c *cloud, outputs map[string]string) {
	t.Helper()
	c = &cloud{t, awstest.Moto(t).URL}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	args := map[string]string{
		"StackName": "drawgate", "TemplateBody": string(text),
		"Capabilities.member.1": "CAPABILITY_IAM",
	}
	i := 0
	for k, v := range params {
		i++
		args[fmt.Sprintf("Parameters.member.%d.ParameterKey", i)],
			args[fmt.Sprintf("Parameters.member.%d.ParameterValue", i)] = k, v
	}
	c.query("cloudformation", "2010-05-15", "CreateStack", args, nil)
	var answer struct {
		Status  string                                    `xml:"DescribeStacksResult>Stacks>member>StackStatus"`
		Outputs []struct{ OutputKey, OutputValue string } `xml:"DescribeStacksResult>Stacks>member>Outputs>member"`
	}
	c.query("cloudformation", "2010-05-15", "DescribeStacks", map[string]string{"StackName": "drawgate"}, &answer)
	if answer.Status != "CREATE_COMPLETE" {
		t.Fatalf("the stack is %q", answer.Status)
	}
	outputs = map[string]string{}
	for _, o := range answer.Outputs {
		outputs[o.OutputKey] = o.OutputValue
	}
	return c, outputs
}

// The stack has the table as the store needs it, a topic, a policy, and says what to configure.
func TestStack(t *testing.T) {
	t.Parallel()
	for _, params := range variants {
		t.Run(params["TableName"], func(t *testing.T) {
			t.Parallel()
			c, outputs := newCloud(t, params)
			p := load(t, params)
			name := p.refs["TableName"]
			if l, err := dynamostore.ParseURL(outputs["StoreURL"]); err != nil || l.Table != name ||
				l.Region != "eu-central-1" || outputs["TableName"] != name {
				t.Errorf("the outputs are %v, %v", outputs, err)
			}
			c.checkTable(p)
			topic := "arn:aws:sns:eu-central-1:123456789012:" + strings.ReplaceAll(name, ".", "-") + "-alarms"
			if outputs["TopicArn"] != topic {
				t.Errorf("the topic is %s, want %s", outputs["TopicArn"], topic)
			}
			c.query("sns", "2010-03-31", "GetTopicAttributes", map[string]string{"TopicArn": topic}, nil)
			c.checkPolicy(p, outputs["PolicyArn"], topic)
			if _, ok := outputs["RoleArn"]; ok != (params["CreateRole"] != "") {
				t.Errorf("the outputs are %v", outputs)
			}
		})
	}
}

// checkTable reads the table back. moto's CloudFormation does not switch the TTL on, so the test
// does it as the template says.
func (c *cloud) checkTable(p *template) {
	c.t.Helper()
	name := p.refs["TableName"]
	type schema []struct{ AttributeName, KeyType, AttributeType string }
	var table struct {
		Table struct {
			KeySchema, AttributeDefinitions schema
			BillingModeSummary              struct{ BillingMode string }
			ProvisionedThroughput           struct{ ReadCapacityUnits, WriteCapacityUnits int }
		}
	}
	c.dynamo("DescribeTable", map[string]any{"TableName": name}, &table)
	d := table.Table
	if len(d.KeySchema) != 1 || d.KeySchema[0].AttributeName != dynamostore.KeyAttribute ||
		d.KeySchema[0].KeyType != "HASH" || len(d.AttributeDefinitions) != 1 ||
		d.AttributeDefinitions[0].AttributeType != "S" {
		c.t.Errorf("the keys are %+v of %+v", d.KeySchema, d.AttributeDefinitions)
	}
	provisioned := p.refs["BillingMode"] == "PROVISIONED"
	if provisioned != (d.ProvisionedThroughput.WriteCapacityUnits == 25) ||
		!provisioned && d.BillingModeSummary.BillingMode != "PAY_PER_REQUEST" {
		c.t.Errorf("the capacity is %+v, %+v", d.BillingModeSummary, d.ProvisionedThroughput)
	}
	r := p.resources()["Table"]
	if r["DeletionPolicy"] != "RetainExceptOnCreate" || r["UpdateReplacePolicy"] != "Retain" {
		c.t.Errorf("the table is not kept: %v", r)
	}
	props := r["Properties"].(map[string]any)
	ttl := props["TimeToLiveSpecification"].(map[string]any)
	var set, got map[string]any
	c.dynamo("UpdateTimeToLive", map[string]any{
		"TableName": name,
		"TimeToLiveSpecification": map[string]any{
			"AttributeName": ttl["AttributeName"],
			"Enabled":       ttl["Enabled"] == "true",
		},
	}, &set)
	c.dynamo("DescribeTimeToLive", map[string]any{"TableName": name}, &got)
	if d := got["TimeToLiveDescription"].(map[string]any); d["AttributeName"] != dynamostore.TTLAttribute ||
		d["TimeToLiveStatus"] != "ENABLED" {
		c.t.Errorf("the TTL is %v", d)
	}
	if b := props["PointInTimeRecoverySpecification"].(map[string]any); b["PointInTimeRecoveryEnabled"] != p.refs["PointInTimeRecovery"] || props["DeletionProtectionEnabled"] != p.refs["DeletionProtection"] {
		c.t.Errorf("backups %v, protection %v", b, props["DeletionProtectionEnabled"])
	}
}

// checkPolicy reads the policy back: it must allow what a process needs, of this table, namespace
// and topic, and nothing else.
func (c *cloud) checkPolicy(p *template, arn, topic string) {
	c.t.Helper()
	var answer struct {
		Document string `xml:"GetPolicyVersionResult>PolicyVersion>Document"`
	}
	c.query("iam", "2010-05-08", "GetPolicyVersion", map[string]string{"PolicyArn": arn, "VersionId": "v1"}, &answer)
	text, err := url.QueryUnescape(answer.Document)
	if err != nil {
		c.t.Fatal(err)
	}
	var doc struct {
		Statement []struct {
			Sid, Effect, Resource string
			Action                any
			Condition             map[string]map[string]string
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		c.t.Fatal(err, text)
	}
	got := map[string]string{}
	for _, s := range doc.Statement {
		got[s.Resource] = fmt.Sprintf("%s %v %v", s.Effect, s.Action, s.Condition)
	}
	actions := "dynamodb:GetItem dynamodb:BatchGetItem dynamodb:UpdateItem dynamodb:PutItem dynamodb:DeleteItem dynamodb:DescribeTable dynamodb:DescribeTimeToLive"
	if p.refs["ListBuckets"] == "true" {
		actions += " dynamodb:Scan"
	}
	want := map[string]string{
		"arn:aws:dynamodb:eu-central-1:123456789012:table/" + p.refs["TableName"]: "Allow [" + actions + "] map[]",
		"*":   "Allow cloudwatch:PutMetricData map[StringEquals:map[cloudwatch:namespace:" + p.refs["Namespace"] + "]]",
		topic: "Allow sns:Publish map[]",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Errorf("the policy allows\n%v, want\n%v", got, want)
	}
}

// alarm is one as CloudWatch shows it.
type alarm struct {
	AlarmName, Namespace, MetricName, Statistic string
	ComparisonOperator, TreatMissingData        string
	Period, EvaluationPeriods                   int
	Threshold                                   float64
	Actions                                     []string `xml:"AlarmActions>member"`
	Dimensions                                  []struct {
		Name,
		Value string
	} `xml:"Dimensions>member"`
}

// String says when it alarms.
func (a *alarm) String() string {
	s := a.Namespace + " " + a.MetricName
	for _, d := range a.Dimensions {
		s += " " + d.Name + "=" + d.Value
	}
	op := map[string]string{"GreaterThanOrEqualToThreshold": ">=", "LessThanThreshold": "<"}[a.ComparisonOperator]
	return fmt.Sprintf("%s: %s %s %v in %d of %ds, %s", s, a.Statistic, op, a.Threshold, a.EvaluationPeriods, a.Period,
		a.TreatMissingData)
}

// The alarms tell the topic: of a call that a provider refused, of a fallback, of throttling that
// goes on, and of limits that are nearly used up. moto's CloudFormation makes no alarms, so the
// test gives CloudWatch what the template says, and reads it back.
//
// req: A10, A11, A14
func TestAlarms(t *testing.T) {
	t.Parallel()
	for i, want := range [][]string{
		{
			"AWS/DynamoDB ReadThrottleEvents TableName=drawgate: Sum >= 1 in 3 of 60s, notBreaching",
			"AWS/DynamoDB WriteThrottleEvents TableName=drawgate: Sum >= 1 in 3 of 60s, notBreaching",
			"Drawgate RateLimiterFallbackActivated: Sum >= 1 in 1 of 60s, notBreaching",
			"Drawgate RateLimiterProviderRefusals: Sum >= 1 in 1 of 60s, notBreaching",
			"Drawgate RateLimiterStoreThrottled: Sum >= 1 in 3 of 60s, notBreaching",
			"Drawgate RateLimiterTokensAvailable BucketType=RPD: Minimum < 5 in 1 of 60s, ignore",
			"Drawgate RateLimiterTokensAvailable BucketType=RPM: Minimum < 1 in 5 of 60s, notBreaching",
			"Drawgate RateLimiterTokensAvailable BucketType=TPM: Minimum < 10000 in 5 of 60s, notBreaching",
		},
		{
			"AWS/DynamoDB ReadThrottleEvents TableName=drawgate: Sum >= 1 in 5 of 60s, notBreaching",
			"AWS/DynamoDB WriteThrottleEvents TableName=drawgate: Sum >= 1 in 5 of 60s, notBreaching",
			"Mine RateLimiterFallbackActivated: Sum >= 1 in 1 of 60s, notBreaching",
			"Mine RateLimiterProviderRefusals: Sum >= 1 in 1 of 60s, notBreaching",
			"Mine RateLimiterStoreThrottled: Sum >= 1 in 5 of 60s, notBreaching",
		},
	} {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			p, c := load(t, variants[i]), &cloud{t, awstest.Moto(t).URL}
			for _, r := range p.resources() {
				if r["Type"] == "AWS::CloudWatch::Alarm" {
					args := map[string]string{}
					flatten(args, "", r["Properties"])
					c.query("monitoring", "2010-08-01", "PutMetricAlarm", args, nil)
				}
			}
			var answer struct {
				Alarms []alarm `xml:"DescribeAlarmsResult>MetricAlarms>member"`
			}
			c.query("monitoring", "2010-08-01", "DescribeAlarms", nil, &answer)
			var got []string
			for i := range answer.Alarms {
				a := &answer.Alarms[i]
				got = append(got, a.String())
				if len(a.Actions) != 1 || a.Actions[0] != p.refs["Topic"] ||
					!strings.HasPrefix(a.AlarmName, p.refs["TableName"]+": ") {
					t.Errorf("alarm %q tells %v", a.AlarmName, a.Actions)
				}
			}
			if sort.Strings(got); !slices.Equal(got, want) {
				t.Errorf("the alarms are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// flatten writes a value as parameters of the protocol Query.
func flatten(to map[string]string, name string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			flatten(to, strings.TrimPrefix(name+"."+k, "."), e)
		}
	case []any:
		for i, e := range v {
			flatten(to, fmt.Sprintf("%s.member.%d", name, i+1), e)
		}
	case string:
		to[name] = v
	}
}

// The dashboard shows every metric, those with a bucket type for each of the types. No alarm and no
// graph is of a metric that does not exist.
//
// req: A13, A15
func TestDashboardShowsEveryMetric(t *testing.T) {
	t.Parallel()
	c, _ := newCloud(t, nil)
	var answer struct {
		Body string `xml:"GetDashboardResult>DashboardBody"`
	}
	c.query("monitoring", "2010-08-01", "GetDashboard", map[string]string{"DashboardName": "drawgate"}, &answer)
	var body struct {
		Widgets []struct {
			Properties struct {
				Region  string
				Metrics [][]any
			}
		}
	}
	if err := json.Unmarshal([]byte(answer.Body), &body); err != nil {
		t.Fatal(err, answer.Body)
	}
	shown, types := map[string]bool{}, map[string][]string{}
	for _, w := range body.Widgets {
		if w.Properties.Region != "eu-central-1" {
			t.Errorf("a graph is of the region %q", w.Properties.Region)
		}
		for _, m := range w.Properties.Metrics {
			name := m[1].(string)
			if m[0] != "Drawgate" {
				continue
			}
			if shown[name] = true; len(m) > 3 && m[2] == "BucketType" {
				types[name] = append(types[name], m[3].(string))
			}
		}
	}
	for _, name := range metrics {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
	for _, r := range load(t, nil).resources() {
		if props := r["Properties"].(map[string]any); r["Type"] == "AWS::CloudWatch::Alarm" &&
			props["Namespace"] == "Drawgate" {
			shown[props["MetricName"].(string)] = true
		}
	}
	for _, name := range metrics {
		delete(shown, name)
	}
	if len(shown) > 0 {
		t.Errorf("there are no such metrics: %v", shown)
	}
	for _, name := range []string{
		"RateLimiterTokensAcquired", "RateLimiterTokensAvailable",
		"RateLimiterAcquisitionFailures",
	} {
		if !slices.Equal(types[name], []string{"RPM", "TPM", "RPD"}) {
			t.Errorf("%s is shown of %v", name, types[name])
		}
	}
}

// Each parameter has a default and says what it is for.
func TestParametersAreExplained(t *testing.T) {
	t.Parallel()
	p := load(t, nil)
	for name, def := range p.section("Parameters") {
		d := def.(map[string]any)
		if _, ok := d["Default"].(string); !ok || d["Description"] == nil {
			t.Errorf("%s: %v", name, d)
		}
	}
	for i, want := range []bool{false, true} {
		r := load(t, variants[i]).resources()
		_, role := r["Role"]
		_, email := r["EmailSubscription"]
		if role != want || email != want {
			t.Errorf("variant %d: role %v, subscription %v", i, role, email)
		}
	}
	if r := load(t, variants[1]).resources(); fmt.Sprint(r["EmailSubscription"]["Properties"]) !=
		"map[Endpoint:ops@example.com Protocol:email TopicArn:arn:aws:sns:eu-central-1:123456789012:drawgate-alarms]" {
		t.Errorf("the subscription is %v", r["EmailSubscription"])
	}
}
