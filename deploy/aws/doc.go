// Package aws holds a template for AWS CloudFormation. Its tests apply it to a stand-in for AWS.
package aws
