#!/bin/sh
# Prints where make test keeps what its servers write: in memory if there is room for it. The tests kill processes, and
# these lose nothing that is in the page cache: so a disk would only cost time. What a disk does when it fails is tested by
# a mount of its own (internal/testkit/faultmount). make soak, the demo and the lab are on a disk. TMPDIR, if it is set, has
# the last word. Where a control group bounds the memory, nobody knows how much of it is left: then it is a disk, too.
if [ -n "${TMPDIR:-}" ]; then
	echo "$TMPDIR"
	exit
fi
memory=/dev/shm
free=$(df -k --output=avail "$memory" 2>/dev/null | tail -1)
available=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo 2>/dev/null)
if [ "${free:-0}" -ge 16000000 ] && [ "${available:-0}" -ge 16000000 ] && [ "$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)" = max ] &&
	! grep -E "^[^ ]+ $memory " /proc/mounts | grep -qw noexec; then
	echo "$memory"
else
	echo /tmp
fi
