module github.com/drawgate/drawgate/examples/boltstore

go 1.26.0

replace github.com/drawgate/drawgate => ../..

require (
	github.com/drawgate/drawgate v0.0.0-00010101000000-000000000000
	go.etcd.io/bbolt v1.5.0
)

require golang.org/x/sys v0.48.0 // indirect
