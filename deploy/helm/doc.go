// Package helm has the tests of the chart in drawgate: rendered with Helm's library in all
// combinations of its options, decoded strictly, and run as the kubelet would run it. They are a
// module of their own, because Helm and the types of Kubernetes take minutes to compile: "make
// long" runs them.
package helm
