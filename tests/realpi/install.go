package realpi

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Install is where pi is, and the Node.js that runs it.
type Install struct{ Node, CLI string }

// Find returns the installed pi. Without one it ends the test: it fails where
// REJOIN_REQUIRE_PI=1 asks for pi, and says elsewhere why it is skipped.
func Find(tb testing.TB) Install {
	tb.Helper()
	dir := os.Getenv("REJOIN_PI_DIR")
	if dir == "" {
		if cache, err := os.UserCacheDir(); err == nil {
			dir = filepath.Join(cache, "rejoin-test", "pi")
		}
	}
	modules := filepath.Join(dir, "node_modules")
	in := Install{
		Node: filepath.Join(modules, ".bin", "node"),
		CLI:  filepath.Join(modules, "@earendil-works", "pi-coding-agent", "dist", "bundle", "cli.js"),
	}
	for _, file := range []string{in.Node, in.CLI, filepath.Join(dir, "installed")} {
		if _, err := os.Stat(file); err != nil {
			miss := fmt.Sprintf("pi is not installed in %s (tests/pi/install.sh does that): %v", dir, err)
			if os.Getenv("REJOIN_REQUIRE_PI") == "1" {
				tb.Fatal(miss)
			}
			tb.Skip(miss)
		}
	}
	return in
}

// Quiet is the part of pi's environment that keeps it off the network.
func Quiet() map[string]string {
	return map[string]string{"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1", "PI_CODING_AGENT_DIR": ""}
}

// Settle writes pi's settings into a home: the models at url, and retries that do
// not wait.
func Settle(tb testing.TB, home, url string) {
	tb.Helper()
	dir := filepath.Join(home, ".pi", "agent")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	type object = map[string]any
	Write(tb, filepath.Join(dir, "models.json"), object{"providers": object{"mock": object{
		"baseUrl": url, "apiKey": "none", "api": "openai-completions",
		"models": []object{{"id": "mock-chat", "reasoning": true}, {"id": "mock-other"}},
	}}})
	Write(tb, filepath.Join(dir, "settings.json"), object{
		"defaultProvider": "mock", "defaultModel": "mock-chat", "retry": object{"baseDelayMs": 10},
	})
}

// Write writes a value as JSON into a file.
func Write(tb testing.TB, path string, v any) {
	tb.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
}
