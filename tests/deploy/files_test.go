package deploy_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// texts are the files of deploy/ by their path in the module.
func texts(t *testing.T) map[string]string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	err = filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		all[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 6 {
		t.Fatalf("deploy/ has only %d files", len(all))
	}
	return all
}

// documents are the YAML documents of a file.
func documents(t *testing.T, path, text string) []any {
	t.Helper()
	var all []any
	for part := range strings.SplitSeq("\n"+text, "\n---\n") {
		var doc any
		if err := yaml.Unmarshal([]byte(part), &doc); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if doc != nil {
			all = append(all, doc)
		}
	}
	return all
}

// container is something with an image and a command line: a service of a compose
// file, a container of a Pod.
type container struct {
	path string
	fields
}

type fields = map[string]any

func containers(t *testing.T, all map[string]string) []container {
	t.Helper()
	var found []container
	for path, text := range all {
		if !strings.HasSuffix(path, ".yaml") {
			continue
		}
		for _, doc := range documents(t, path, text) {
			walk(doc, func(m fields) {
				if _, ok := m["image"].(string); ok {
					found = append(found, container{path, m})
				}
			})
		}
	}
	return found
}

// walk calls see for every mapping in a document.
func walk(node any, see func(fields)) {
	switch n := node.(type) {
	case fields:
		see(n)
		for _, v := range n {
			walk(v, see)
		}
	case []any:
		for _, v := range n {
			walk(v, see)
		}
	}
}

func words(v any) []string {
	list, _ := v.([]any)
	var all []string
	for _, w := range list {
		if s, ok := w.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// ours reports whether an image is the one that deploy/Dockerfile makes.
func ours(image string) bool { return image == "rejoin" || strings.HasPrefix(image, "rejoin:") }

var (
	pinned     = regexp.MustCompile(`:v?\d+\.\d+\.\d+([-.][a-z0-9.-]+)?$|@sha256:[0-9a-f]{64}$`)
	from       = regexp.MustCompile(`(?m)^FROM (\S+)`)
	arrays     = regexp.MustCompile(`(?m)(?:CMD|ENTRYPOINT) (\[.*\])$`)
	execStart  = regexp.MustCompile(`(?m)^Exec\w+=(\S*/rejoin .*)$`)
	shellLines = regexp.MustCompile(`(?m)^\s*(?:\$ |#\s+)?(?:\S+=\S+ )?(?:\./|/)?rejoin ([a-z-]+(?: .*)?)$`)
	mentioned  = regexp.MustCompile(`\bdeploy/[\w.-]+(?:/[\w.-]+)*[\w]`)
	written    = regexp.MustCompile(`^deploy/((compose|kubernetes)/nats(/|$)|compose/cluster-secret$)`)
	variable   = regexp.MustCompile(`\$\{\w+\}|\$\(\w+\)`)
	flagWord   = regexp.MustCompile(`^--([a-z][a-z-]*)`)
	helpFlags  = regexp.MustCompile(`--([a-z][a-z-]*)`)
)

// TestImagesArePinned: a tag that moves makes two machines of one deployment run
// different programs.
func TestImagesArePinned(t *testing.T) {
	all := texts(t)
	seen := 0
	for _, c := range containers(t, all) {
		image := c.fields["image"].(string)
		seen++
		if !ours(image) && !pinned.MatchString(image) {
			t.Errorf("%s: image %s is not pinned to a version", c.path, image)
		}
	}
	for _, m := range from.FindAllStringSubmatch(all["deploy/Dockerfile"], -1) {
		seen++
		if m[1] != "scratch" && !pinned.MatchString(m[1]) {
			t.Errorf("deploy/Dockerfile: image %s is not pinned to a version", m[1])
		}
	}
	if seen < 3 {
		t.Fatalf("only %d images were found", seen)
	}
}

// TestMentionedFilesExist: a file that a comment or a text of deploy/ names by its
// path is there, unless it is one of those that a first step writes.
func TestMentionedFilesExist(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range texts(t) {
		for _, name := range mentioned.FindAllString(text, -1) {
			if written.MatchString(name) {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s names %s: %v", path, name, err)
			}
		}
	}
}

// commandLines are those of rejoin in all files: path and words after the program.
func commandLines(t *testing.T, all map[string]string) (lines []struct {
	path  string
	words []string
},
) {
	t.Helper()
	add := func(path string, words []string) {
		if len(words) > 0 {
			lines = append(lines, struct {
				path  string
				words []string
			}{path, words})
		}
	}
	for _, c := range containers(t, all) {
		if !ours(c.fields["image"].(string)) {
			continue
		}
		for _, key := range []string{"command", "args"} {
			add(c.path, program(words(c.fields[key])))
		}
	}
	for path, text := range all {
		for _, m := range arrays.FindAllStringSubmatch(text, -1) {
			var list []string
			if err := json.Unmarshal([]byte(m[1]), &list); err != nil {
				t.Errorf("%s: %s: %v", path, m[1], err)
			}
			add(path, program(list))
		}
		for _, m := range execStart.FindAllStringSubmatch(text, -1) {
			add(path, strings.Fields(m[1])[1:])
		}
		for _, m := range shellLines.FindAllStringSubmatch(text, -1) {
			add(path, strings.Fields(m[1]))
		}
	}
	return lines
}

// program drops the program's own name from a command line.
func program(list []string) []string {
	if len(list) > 0 && filepath.Base(list[0]) == "rejoin" {
		return list[1:]
	}
	return list
}

// TestFlagsExist: every flag of rejoin that deploy/ uses is one of the binary's, of
// the command that it stands behind.
func TestFlagsExist(t *testing.T) {
	known := map[string]map[string]bool{}
	seen := 0
	for _, line := range commandLines(t, texts(t)) {
		command := subcommand(line.words)
		if known[command] == nil {
			known[command] = flagsOf(t, line.path, command)
		}
		for _, word := range line.words {
			if word == "--" {
				break
			}
			m := flagWord.FindStringSubmatch(word)
			if m == nil {
				continue
			}
			seen++
			if !known[command][m[1]] {
				t.Errorf("%s: rejoin %s has no flag --%s", line.path, command, m[1])
			}
		}
	}
	if seen < 5 {
		t.Fatalf("only %d flags were found", seen)
	}
}

// TestServersUnderstandTheirFlags: the flags of each server go together, for the
// role that it has: the binary itself says so.
func TestServersUnderstandTheirFlags(t *testing.T) {
	seen := 0
	for _, line := range commandLines(t, texts(t)) {
		if line.words[0] != "serve" {
			continue
		}
		seen++
		args := []string{"serve", "--print-config"}
		for _, w := range line.words[1:] {
			args = append(args, expand(w))
		}
		cmd := exec.CommandContext(harness.Context(t), harness.Binary(t), args...)
		cmd.Env = append(os.Environ(), "REJOIN_TOKEN=a-token-of-this-test")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: rejoin %s: %v\n%s", line.path, strings.Join(args, " "), err, out)
		}
	}
	if seen < 10 {
		t.Fatalf("only %d servers were found", seen)
	}
}

// expand puts something in for what systemd or Kubernetes would.
func expand(word string) string {
	word = strings.NewReplacer("${REJOIN_NATS}", "tls://a:4222,tls://b:4222", "${REJOIN_LABEL}", "host=a", "${REJOIN_CAPACITY}", "50",
		"$(POD_IP)", "192.0.2.1", "%H", "host.example").Replace(word)
	return variable.ReplaceAllString(word, "x")
}

// subcommand is the command of a line and, where there is one, the command below it.
func subcommand(words []string) string {
	name := words[0]
	if len(words) > 1 && (name == "worker" || name == "token") && regexp.MustCompile(`^[a-z]+$`).MatchString(words[1]) {
		name += " " + words[1]
	}
	return name
}

func flagsOf(t *testing.T, path, command string) map[string]bool {
	t.Helper()
	out, err := exec.CommandContext(harness.Context(t), harness.Binary(t), append(strings.Fields(command), "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: rejoin %s --help: %v\n%s", path, command, err, out)
	}
	all := map[string]bool{}
	for _, m := range helpFlags.FindAllStringSubmatch(string(out), -1) {
		all[m[1]] = true
	}
	return all
}

// TestHealthChecksAskTheRightPort: whoever asks for health asks where --admin is.
func TestHealthChecksAskTheRightPort(t *testing.T) {
	all := texts(t)
	asked := ""
	for _, m := range arrays.FindAllStringSubmatch(all["deploy/Dockerfile"], -1) {
		if strings.Contains(m[1], `"health"`) {
			asked = after(strings.Split(strings.Trim(m[1], "[]"), ", "), `"--admin"`)
		}
	}
	if asked == "" {
		t.Fatal("deploy/Dockerfile has no health check that asks --admin")
	}
	asked = strings.Trim(asked, `"`)
	if !strings.Contains(all["deploy/Dockerfile"], `CMD ["serve"`) || strings.Count(all["deploy/Dockerfile"], asked) < 2 {
		t.Errorf("deploy/Dockerfile: the server does not listen on %s", asked)
	}
	port := asked[strings.LastIndexByte(asked, ':'):]
	for _, c := range containers(t, all) {
		if !ours(c.fields["image"].(string)) {
			continue
		}
		line := append(words(c.fields["command"]), words(c.fields["args"])...)
		if len(line) > 0 && line[0] == "serve" && !strings.HasSuffix(after(line, "--admin"), port) {
			t.Errorf("%s: rejoin serve without --admin …%s, where its health is asked for: %v", c.path, port, line)
		}
	}
}

// after is the word behind another one, or behind its =.
func after(words []string, flag string) string {
	for i, w := range words {
		if value, ok := strings.CutPrefix(w, flag+"="); ok {
			return value
		}
		if w == flag && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}
