package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
)

// standin is a moto of its own, which handles one request at a time.
type standin struct {
	*sysx.Child

	url string
}

func startStandin() (*standin, error) {
	c, err := sysx.StartChild(exec.Command(filepath.Join(*tools, "aws-python/bin/python"), "-I", "../internal/awstest/moto.py")) //nolint:gosec,noctx // installed for this
	if err != nil {
		return nil, err
	}
	line, err := c.Line(patience)
	if err != nil {
		c.Stop()
		return nil, err
	}
	return &standin{c, "http://127.0.0.1:" + strings.TrimPrefix(line, "listening on ")}, nil
}

// ask sends a request without the delay.
func (s *standin) ask(op, body string, answer any) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	req.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential=a/20260101/"+region+"/dynamodb/aws4_request, SignedHeaders=host, Signature=00")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", op, resp.Status, text)
	}
	if err != nil {
		return err
	}
	return json.NewDecoder(bytes.NewReader(text)).Decode(answer)
}

// table reads the only table.
func (s *standin) table() (*table, error) {
	type index struct {
		KeySchema  []struct{ AttributeName string }
		Projection struct{ ProjectionType string }
	}
	var about struct {
		Table struct {
			index

			GlobalSecondaryIndexes, LocalSecondaryIndexes []index
		}
	}
	request := fmt.Sprintf(`{"TableName": %q}`, tableName)
	if err := s.ask("DescribeTable", request, &about); err != nil {
		return nil, err
	}
	names := func(i index) (names []string) {
		for _, a := range i.KeySchema {
			names = append(names, a.AttributeName)
		}
		return names
	}
	t := &table{key: names(about.Table.index), items: map[string]item{}}
	for _, i := range append(about.Table.GlobalSecondaryIndexes, about.Table.LocalSecondaryIndexes...) {
		if i.Projection.ProjectionType == "ALL" {
			t.indexes = append(t.indexes, names(i))
		}
	}
	var scanned struct {
		Items            []item
		LastEvaluatedKey item
	}
	if err := s.ask("Scan", request, &scanned); err != nil {
		return nil, err
	}
	if scanned.LastEvaluatedKey != nil {
		return nil, fmt.Errorf("the table has more than the %d items of one page", len(scanned.Items))
	}
	for _, it := range scanned.Items {
		t.items[t.keyText(it)] = it
	}
	return t, nil
}
