package full_test

import (
	"testing"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Children{"printer": printerChild})
}
