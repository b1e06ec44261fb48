"""Settings of the CPU, memory and topology managers, and upstream's messages for what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.managers.plan.options import CpuOptions, TopologyOptions
from tests.unit.agent.config.test_settings import parsed, refusal

STATIC = "cpuManagerPolicy: static\nsystemReserved: {cpu: 500m}\n"


def test_nothing_by_default(tmp_path: Path) -> None:
    found = parsed(tmp_path, "").managers
    assert (found.static_cpus, found.topology, found.scope, found.reserve) == (False, "none", "container", 0)


def test_what_is_asked_for(tmp_path: Path) -> None:
    text = STATIC + 'cpuManagerPolicyOptions: {full-pcpus-only: "true"}\ntopologyManagerPolicy: restricted\n'
    text += 'topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true", max-allowable-numa-nodes: "9"}\n'
    found = parsed(tmp_path, text, "--kube-reserved=cpu=1").managers
    assert (found.static_cpus, found.reserve, found.reconcile_period) == (True, 1.5, 10)
    assert found.cpu_options == CpuOptions(full_cores=True)
    assert (found.topology, found.topology_options) == ("restricted", TopologyOptions(True, 9))


def test_reserved_cpus_take_the_place_of_reserved_amounts(tmp_path: Path) -> None:
    text = "cpuManagerPolicy: static\nreservedSystemCPUs: 0,2-3\nsystemReserved: {cpu: 1, memory: 1Gi}\n"
    found = parsed(tmp_path, text, "--kube-reserved=cpu=4,memory=2Gi")
    assert found.managers.reserve == 3
    assert found.managers.reserved_cpus == {0, 2, 3}
    assert found.cgroups.system_reserved == {"cpu": "3", "memory": "1Gi"}
    assert found.cgroups.kube_reserved == {"memory": "2Gi"}


def test_memory_by_numa_node(tmp_path: Path) -> None:
    text = "memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n"
    assert parsed(tmp_path, text).managers.reserved_memory == ((0, {"memory": 1 << 30}),)
    flag = parsed(tmp_path, "", "--memory-manager-policy=Static", "--reserved-memory=1:memory=1Gi,hugepages-2Mi=2Mi")
    assert flag.managers.static_memory
    assert flag.managers.reserved_memory == ((1, {"memory": 1 << 30, "hugepages-2Mi": 2 << 20}),)


def test_gates_open_options(tmp_path: Path) -> None:
    text = STATIC + 'cpuManagerPolicyOptions: {distribute-cpus-across-cores: "true"}\n'
    found = parsed(tmp_path, text + "featureGates: {CPUManagerPolicyAlphaOptions: true}\n")
    assert found.managers.cpu_options.across_cores
    assert not any("CPUManagerPolicyAlphaOptions" in line for line in found.notices)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "cpuManagerPolicy: static\n",
            "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than",
        ),
        ("cpuManagerPolicy: dynamic\n", 'unknown policy: "dynamic"'),
        ("cpuManagerReconcilePeriod: -1s\n", "must be more than 0"),
        ('cpuManagerPolicyOptions: {full-pcpus-only: "true"}\n', "None policy: received unsupported options=map[full-"),
        (STATIC + 'cpuManagerPolicyOptions: {fast: "true"}\n', 'unknown CPU Manager Policy option: "fast"'),
        (STATIC + 'cpuManagerPolicyOptions: {full-pcpus-only: "si"}\n', 'bad value for option "full-pcpus-only"'),
        (
            STATIC + 'cpuManagerPolicyOptions: {align-by-socket: "true"}\n',
            'CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided',
        ),
        (
            STATIC + "featureGates: {CPUManagerPolicyAlphaOptions: true}\ncpuManagerPolicyOptions: "
            '{full-pcpus-only: "true", distribute-cpus-across-cores: "true"}\n',
            "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
        ),
        (
            STATIC + "featureGates: {CPUManagerPolicyBetaOptions: false}\ncpuManagerPolicyOptions: "
            '{distribute-cpus-across-numa: "true"}\n',
            "CPU Manager Policy Beta-level Options not enabled",
        ),
        (
            STATIC + "featureGates: {CPUManagerPolicyAlphaOptions: true}\ntopologyManagerPolicy: single-numa-node\n"
            'cpuManagerPolicyOptions: {align-by-socket: "true"}\n',
            "policy is incompatible with CPUManager align-by-socket policy option",
        ),
        ("memoryManagerPolicy: static\n", 'unknown policy: "static"'),
        ("memoryManagerPolicy: BestEffort\n", 'policy "BestEffort" is not available for platform "linux"'),
        (
            "reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]\n",
            'the limit type "cpu" for NUMA node 0 is not supported',
        ),
        ("reservedMemory: [{numaNode: 0, limits: {memory: 0}}]\n", "reserved memory may not be zero for NUMA node 0"),
        (
            "reservedMemory: [{numaNode: 1, limits: {memory: 1}}, {numaNode: 1, limits: {memory: 2}}]\n",
            'the reserved memory has a duplicate value for NUMA node 1 and resource "memory"',
        ),
        ("reservedSystemCPUs: 0-x\n", "unable to parse reservedSystemCPUs (--reserved-cpus) 0-x"),
        (
            "reservedSystemCPUs: '0'\nsystemReservedCgroup: /system\n",
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup",
        ),
        (
            "topologyManagerPolicy: strict\n",
            'topologyManagerPolicy (--topology-manager-policy) "strict" must be one of:',
        ),
        ("topologyManagerScope: node\n", 'topologyManagerScope (--topology-manager-scope) "node" must be one of:'),
        (
            "topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {max-allowable-numa-nodes: '7'}\n",
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
        ),
        (
            "topologyManagerPolicy: restricted\ntopologyManagerPolicyOptions: {x: 'y'}\n",
            'unknown Topology Manager Policy option: "x"',
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in refusal(tmp_path, text)
