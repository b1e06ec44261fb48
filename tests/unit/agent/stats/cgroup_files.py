"""Files of one pod's cgroup as the kernel shows them; `{}` in a path stands for the cgroup."""

from __future__ import annotations

POD_UID = "97eac7d4-ec81-4f67-baa4-7567e438a948"
CONTAINER_ID = "b7903ffcf744a1b792629407b9a4194c9496e850583bce382c079e6f862f4a36"
V1 = {
    "cpuacct/{}/cpuacct.usage": "345899782\n",
    "cpuacct/{}/cpuacct.stat": "user 12\nsystem 21\n",
    "cpu/{}/cpu.stat": "nr_periods 7\nnr_throttled 2\nthrottled_time 1500000\nnr_bursts 0\nburst_time 0\n",
    "memory/{}/memory.usage_in_bytes": "614400\n",
    "memory/{}/memory.max_usage_in_bytes": "3010560\n",
    "memory/{}/memory.failcnt": "4\n",
    "memory/{}/memory.stat": (
        "cache 12288\nrss 45056\npgfault 145\npgmajfault 1\ninactive_file 0\n"
        "hierarchical_memory_limit 9223372036854771712\n"
        "hierarchical_memsw_limit 9223372036854771712\ntotal_cache 20480\ntotal_rss 163840\ntotal_mapped_file 4096\n"
        "total_swap 0\ntotal_pgfault 11045\ntotal_pgmajfault 3\ntotal_inactive_file 14400\n"
        "total_active_file 5000\ntotal_dirty 600\ntotal_writeback 70\n"
    ),
    "memory/{}/memory.kmem.usage_in_bytes": "131072\n",
    "memory/{}/memory.memsw.limit_in_bytes": "9223372036854771712\n",
    "pids/{}/pids.current": "2\n",
}
V2 = {
    "{}/cpu.stat": (
        "usage_usec 345899\nuser_usec 120000\nsystem_usec 210000\nnr_periods 7\nnr_throttled 2\nthrottled_usec 1500\n"
    ),
    "{}/memory.current": "614400\n",
    "{}/memory.peak": "3010560\n",
    "{}/memory.max": "max\n",
    "{}/memory.swap.current": "4096\n",
    "{}/memory.events": "low 0\nhigh 0\nmax 4\noom 0\noom_kill 0\n",
    "{}/memory.stat": (
        "anon 163840\nfile 20480\nkernel 131072\nfile_mapped 4096\ninactive_file 14400\npgfault 11045\npgmajfault 3\n"
        "active_file 5000\nfile_dirty 600\nfile_writeback 70\npgscan 80\npgsteal 60\n"
        "workingset_refault_anon 3\nworkingset_refault_file 4\n"
    ),
    "{}/memory.swap.max": "1048576\n",
    "{}/pids.current": "2\n",
}
