// Package cgroup puts the processes of a run into a control group of their own,
// where the system lets this process make some: so that all of them are found
// whatever they do, end at once, and are held to limits.
//
// A Tree is this process's part of the hierarchies: below its own group a base
// rejoin-<instance>, below that one group per run. Version 2 (the unified
// hierarchy) is preferred: a child is made inside its group by the kernel, and
// cgroup.kill ends it with all its descendants. Controllers that version 2 does
// not have are taken from hierarchies of version 1; without version 2 one of those tells
// whose process is whose.
//
// Nothing outside the base is touched, with one exception: version 2 gives
// controllers to the groups below one only when no process is in it. So this
// process moves itself into a leaf below the base when the first limit asks for it.
//
// The package knows nothing of signals to single processes, nor of sessions.
package cgroup
