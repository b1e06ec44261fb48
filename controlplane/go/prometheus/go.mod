// Prometheus, for the test that asks the queries of people's dashboards of what a node measures.
module nodewright.dev/prometheus

go 1.26.7

require github.com/prometheus/prometheus v0.316.0
