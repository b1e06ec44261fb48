"""Reading the API server's metrics of the calls that a pod's start needs."""

from __future__ import annotations

from cli.bench.kubelet_api import CallTime, calls_in, seconds_of_one_each

_METRICS = """# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_bucket{verb="POST",resource="pods",subresource="",scope="resource",le="+Inf"} 2
apiserver_request_duration_seconds_sum{verb="POST",resource="pods",subresource="",scope="resource"} 0.04
apiserver_request_duration_seconds_count{verb="POST",resource="pods",subresource="",scope="resource"} 2
apiserver_request_duration_seconds_sum{verb="POST",resource="pods",subresource="exec",scope="resource"} 9
apiserver_request_duration_seconds_count{verb="POST",resource="pods",subresource="exec",scope="resource"} 1
apiserver_request_duration_seconds_sum{verb="PATCH",resource="pods",subresource="status",scope="resource"} 0.5
apiserver_request_duration_seconds_count{verb="PATCH",resource="pods",subresource="status",scope="resource"} 10
"""


def test_calls_are_counted_by_kind() -> None:
    assert calls_in(_METRICS) == {"POST/pods/": CallTime(0.04, 2), "PATCH/pods/status": CallTime(0.5, 10)}


def test_seconds_of_one_each_are_the_means_between_two_readings() -> None:
    before = {"a": CallTime(1, 10), "b": CallTime(5, 5)}
    after = {"a": CallTime(1.2, 20), "b": CallTime(5, 5), "c": CallTime(0.03, 1)}
    assert round(seconds_of_one_each(before, after), 6) == 0.05
