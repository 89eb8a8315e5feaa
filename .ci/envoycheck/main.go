// Command envoycheck reads Envoy's static configuration as Envoy does: it decodes
// it into the Bootstrap message, in which an unknown field is an error, and holds
// every message in it, those inside Any too, against the rules of its definition.
// It is a module of its own, so that what it needs is not the product's.
package main

import (
	"fmt"
	"os"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
		fmt.Printf("%s: valid\n", path)
	}
}

func check(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	j, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		return err
	}
	var m bootstrap.Bootstrap
	if err := protojson.Unmarshal(j, &m); err != nil {
		return err
	}
	return protorange.Range(m.ProtoReflect(), keepsRules)
}

// keepsRules validates the message at the end of a path. The generated rules stop
// at an Any; the walk does not.
func keepsRules(p protopath.Values) error {
	m, ok := p.Index(-1).Value.Interface().(protoreflect.Message)
	if !ok {
		return nil
	}
	ruled, ok := m.Interface().(interface{ Validate() error })
	if !ok {
		return nil
	}
	if err := ruled.Validate(); err != nil {
		return fmt.Errorf("%v: %w", p.Path, err)
	}
	return nil
}
