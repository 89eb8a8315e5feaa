package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// hierarchy is one mounted tree of groups.
type hierarchy struct {
	version     int
	controllers []string
	own         string // directory of this process's group
	base        string // below it, this server's; made when it is first needed
	made        bool
}

func (h *hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// mounts reads the hierarchies of this process from the texts of
// /proc/self/mountinfo and /proc/self/cgroup (proc(5), cgroups(7)). A hierarchy
// that does not show this process's group is left out.
func mounts(mountinfo, membership string) (v2 *hierarchy, v1 []*hierarchy) {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		root, point := unescape(f[3]), unescape(f[4])
		switch g[0] {
		case "cgroup2":
			if dir, ok := place(membership, func(id, names string) bool { return id == "0" && names == "" }, root, point); ok && v2 == nil {
				v2 = &hierarchy{version: 2, own: dir}
			}
		case "cgroup":
			options := strings.Split(g[2], ",")
			var controllers []string
			dir, ok := place(membership, func(_, names string) bool {
				controllers = strings.Split(names, ",")
				return names != "" && !slices.ContainsFunc(controllers, func(c string) bool { return !slices.Contains(options, c) })
			}, root, point)
			if ok {
				v1 = append(v1, &hierarchy{version: 1, own: dir, controllers: controllers})
			}
		}
	}
	return v2, v1
}

// place is the directory of this process's group in a hierarchy whose group root
// is mounted at point.
func place(membership string, isIt func(id, controllers string) bool, root, point string) (string, bool) {
	for line := range strings.Lines(membership) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !isIt(f[0], f[1]) {
			continue
		}
		path := strings.TrimSuffix(f[2], " (deleted)")
		if path != f[2] || strings.HasPrefix(path, "/..") { // gone, or above what is mounted
			return "", false
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			return "", false
		}
		return filepath.Join(point, rel), true
	}
	return "", false
}

// Holds reports whether a process is in the group of some run of an instance.
func Holds(instance string, pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && strings.Contains(string(b), "/"+basePrefix+instance+"/"+groupPrefix)
}

// unescape undoes the octal escapes of mountinfo: \040 is a space.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
