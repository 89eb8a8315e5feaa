package fault_test

import (
	"testing"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Children{"model": model.Child, "bystander": model.Bystander})
}
