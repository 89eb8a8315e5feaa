package cgroup

import (
	"strconv"

	"rejoin/protocol"
)

// period of CPU limits, in microseconds: the kernel's default.
const cpuPeriod = 100_000

// setting is one limit of a run.
type setting struct {
	controller string
	v1, v2     []value
}

// value is what is written to a file of a group, in this order.
type value struct {
	file, text string
	optional   bool // the kernel may have been built without it
}

func (s setting) values(version int) []value {
	if version == 1 {
		return s.v1
	}
	return s.v2
}

// settings are the limits that l asks for. Swap counts as memory: what may be
// swapped out without a bound is not limited.
func settings(l *protocol.ResourceLimits) []setting {
	if l == nil {
		return nil
	}
	var out []setting
	if l.Memory > 0 {
		bytes := strconv.FormatInt(l.Memory, 10)
		out = append(out, setting{
			Memory,
			[]value{{"memory.limit_in_bytes", bytes, false}, {"memory.memsw.limit_in_bytes", bytes, true}},
			[]value{{"memory.max", bytes, false}, {"memory.swap.max", "0", true}},
		})
	}
	if l.PIDs > 0 {
		v := []value{{"pids.max", strconv.Itoa(l.PIDs), false}}
		out = append(out, setting{PIDs, v, v})
	}
	if l.CPU > 0 {
		quota, period := strconv.FormatInt(int64(l.CPU*cpuPeriod), 10), strconv.Itoa(cpuPeriod)
		out = append(out, setting{
			CPU,
			[]value{{"cpu.cfs_period_us", period, false}, {"cpu.cfs_quota_us", quota, false}},
			[]value{{"cpu.max", quota + " " + period, false}},
		})
	}
	return out
}
