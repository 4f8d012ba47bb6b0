module github.com/drawgate/drawgate/httplimit/chilimit

go 1.26.0

replace github.com/drawgate/drawgate => ../..

require github.com/drawgate/drawgate v0.0.0-00010101000000-000000000000

require github.com/go-chi/chi/v5 v5.5.0

require github.com/expr-lang/expr v1.17.8 // indirect
