package protocol_test

import (
	"slices"
	"testing"

	"rejoin/protocol"
)

func TestElements(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"empty", `[]`, nil},
		{"values", ` [ 1 , "a,]" , [2,3] , {"x":[4]} , null ] `, []string{`1`, `"a,]"`, `[2,3]`, `{"x":[4]}`, `null`}},
		{"an object", `{"a":1}`, nil},
		{"a string", `"[1]"`, nil},
		{"nothing", ``, nil},
		{"cut", `[1,`, []string{`1`}},
		{"not JSON", `[,,`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for e := range protocol.Elements([]byte(c.text)) {
				got = append(got, string(e))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
