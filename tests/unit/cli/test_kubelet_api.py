from __future__ import annotations

from cli.bench.kubelet_api import Taken, calls_in, one_of_each

_METRICS = """# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_bucket{verb="POST",resource="pods",subresource="",scope="resource",le="+Inf"} 2
apiserver_request_duration_seconds_sum{verb="POST",resource="pods",subresource="",scope="resource"} 0.04
apiserver_request_duration_seconds_count{verb="POST",resource="pods",subresource="",scope="resource"} 2
apiserver_request_duration_seconds_sum{verb="POST",resource="pods",subresource="exec",scope="resource"} 9
apiserver_request_duration_seconds_count{verb="POST",resource="pods",subresource="exec",scope="resource"} 1
apiserver_request_duration_seconds_sum{verb="PATCH",resource="pods",subresource="status",scope="resource"} 0.5
apiserver_request_duration_seconds_count{verb="PATCH",resource="pods",subresource="status",scope="resource"} 10
"""


def test_calls_are_counted_by_what_they_are() -> None:
    assert calls_in(_METRICS) == {"POST/pods/": Taken(0.04, 2), "PATCH/pods/status": Taken(0.5, 10)}


def test_one_of_each_is_the_mean_of_what_was_made_meanwhile() -> None:
    before = {"a": Taken(1, 10), "b": Taken(5, 5)}
    after = {"a": Taken(1.2, 20), "b": Taken(5, 5), "c": Taken(0.03, 1)}
    assert round(one_of_each(before, after), 6) == 0.05
