package logqueue

import (
	"testing"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }
