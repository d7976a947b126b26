module github.com/quorate/quorate

go 1.26.0

require (
	go.etcd.io/raft/v3 v3.7.0
	github.com/go-mysql-org/go-mysql v1.16.0
	github.com/go-sql-driver/mysql v1.10.1
	github.com/spf13/cobra v1.10.2
	github.com/pelletier/go-toml/v2 v2.4.3
	github.com/prometheus/client_golang v1.25.0
	github.com/klauspost/compress v1.20.3
	golang.org/x/sync v0.24.0
	golang.org/x/sys v0.49.0
	google.golang.org/protobuf v1.36.12
	github.com/cockroachdb/datadriven v1.0.3
	pgregory.net/rapid v1.3.0
	go.uber.org/goleak v1.3.0
	github.com/rogpeppe/go-internal v1.16.0
	github.com/google/go-cmp v0.7.0
)
