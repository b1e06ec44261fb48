"""What a release is made of: names, sizes, lists, and the same bytes every time."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from cli.project import PROJECT
from controlplane.binaries.model import TABLE
from controlplane.machine.edge import debian
from controlplane.prebuilt.model import DISTRIBUTION
from controlplane.release import parts
from controlplane.release.edge.archives import compressed, write_wheel
from controlplane.release.edge.sources import texts_in
from controlplane.release.model import Component, Entry, Notice
from controlplane.release.plan import build_info, notices, sbom, wheel
from nodelib.errors import Invalid

_NO_PACKAGE = "no-package-has-this-name"
MOMENT = 1_700_000_001  # odd: a zip has two seconds as its unit
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())
TREE = subprocess.run(
    ["git", "-C", str(PROJECT), "ls-files"], capture_output=True, text=True, check=True
).stdout.splitlines()


# --- wheels ----------------------------------------------------------------------------------------------------------


def test_no_wheel_is_larger_than_pypi_takes() -> None:
    sizes = {"a": 60, "b": 50, "c": 40, "d": 10}
    assert wheel.split(sizes, 100) == [["a", "c"], ["b", "d"]]
    assert wheel.split({"a": 100}, 100) == [["a"]]
    assert wheel.LIMIT == 100_000_000 > wheel.LIMIT - wheel.ROOM
    with pytest.raises(Invalid, match=r"has 0\.0 MB") as refusal:
        wheel.split({"a": 101}, 100)
    assert refusal.value.obj == "a"


def test_the_first_wheel_requires_the_others_of_its_version() -> None:
    names = wheel.parts(3)
    assert names == (DISTRIBUTION, f"{DISTRIBUTION}-2", f"{DISTRIBUTION}-3")
    text = wheel.part_metadata(names[0], "1.2", names[1:], ">=3.11")
    assert "Requires-Dist: nodewright-binaries-2==1.2\nRequires-Dist: nodewright-binaries-3==1.2\n" in text
    assert wheel.platform_tag("amd64") == "py3-none-manylinux2014_x86_64"
    assert wheel.file_name("nodewright-binaries-2", "1.2", "t") == "nodewright_binaries_2-1.2-t.whl"


def test_the_wheel_of_the_code_has_all_that_the_code_reads() -> None:
    packaged = wheel.packaged(TREE, SETTINGS)
    for name in (
        *("cni/shim", "controlplane/packages.txt", "controlplane/suites/tiers.txt"),
        *("controlplane/go/cluster/go.mod", "controlplane/machine/edge/init.py", "cli/app.py", "nodelib/errors.py"),
        *("view/static/index.html", "view/static/app.js", "view/static/style.css", "view/static/icon.svg"),
    ):
        assert name in packaged
    assert not [name for name in packaged if name.split("/")[0] in ("tests", "docs", "vagrant", ".ci")]
    folders = {name.partition("/")[0] for name in packaged}
    names = {"agent", "cli", "cni", "controlplane", "csi", "loadbalancer", "nodelib", "policy", "proxy", "view"}
    assert folders == names


def small(folder: Path, moment: int = MOMENT) -> Path:
    """A wheel like that of the code, of one module."""
    body = folder / "body.xz"
    body.write_bytes(b"x" * 100)
    project = {**SETTINGS["project"], "name": "nodewright-sample", "version": "1.0", "dependencies": []}
    project["scripts"] = {"nodewright-sample": "nodewright_sample:main"}
    source = b"def main():\n    print('it runs')\n"
    entries = [
        Entry("nodewright_sample/body.xz", body, stored=True),
        Entry("nodewright_sample/__init__.py", source),
        Entry("nodewright_sample/tool", b"#!/bin/sh\n", 0o755),
    ]
    more = {"entry_points.txt": wheel.entry_points(project), "licenses/LICENSE": "L"}
    files = wheel.complete("nodewright-sample", "1.0", wheel.PURE, entries, wheel.code_metadata(project, "# R"), more)
    target = folder / wheel.file_name("nodewright-sample", "1.0", wheel.PURE)
    write_wheel(target, files, "nodewright_sample-1.0.dist-info/RECORD", moment)
    return target


def test_pip_installs_a_wheel_and_its_program_runs(tmp_path: Path) -> None:
    made = small(tmp_path)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps", "--quiet"]
    done = subprocess.run([*pip, f"--target={tmp_path / 'site'}", str(made)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(
        [str(tmp_path / "site/bin/nodewright-sample")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )
    assert ran.stdout == "it runs\n", ran.stderr
    assert (tmp_path / "site/nodewright_sample/tool").stat().st_mode & 0o111, "what is executable stays so"


def test_the_same_input_gives_the_same_wheel(tmp_path: Path) -> None:
    made = []
    for name, umask, stamp in (("a", 0o022, 1), ("b", 0o077, 2_000_000_000)):
        (tmp_path / name).mkdir()
        before = os.umask(umask)
        try:
            (tmp_path / name / "body.xz").touch()
            os.utime(tmp_path / name / "body.xz", (stamp, stamp))
            made.append(small(tmp_path / name).read_bytes())
        finally:
            os.umask(before)
    assert made[0] == made[1]
    with zipfile.ZipFile(tmp_path / "a/nodewright_sample-1.0-py3-none-any.whl") as found:
        infos = found.infolist()
        assert {one.date_time for one in infos} == {(2023, 11, 14, 22, 13, 20)}
        assert [one.filename for one in infos][-1] == "nodewright_sample-1.0.dist-info/RECORD"
        assert {one.external_attr >> 16 for one in infos} == {0o100644, 0o100755}
        record = found.read(infos[-1]).decode().splitlines()
        assert len(record) == len(infos)


def test_compressing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    source = tmp_path / "program"
    source.write_bytes(b"\xe8\x00\x10\x00\x00text" * 20_000)
    for program in (True, False):
        made = [compressed(source, tmp_path / cache, program=program).read_bytes() for cache in ("a", "b")]
        assert made[0] == made[1]
        assert lzma.decompress(made[0]) == source.read_bytes()


# --- the list of parts -----------------------------------------------------------------------------------------------

PRINTED = """/tmp/kubectl: go1.26.6
\tpath\tk8s.io/kubernetes/cmd/kubectl
\tmod\tnodewright/kube\t(devel)\t
\tdep\tgithub.com/Azure/go-ansiterm\tv0.0.0-2025\th1:aa=
\tdep\tk8s.io/api\tv0.0.0
\t=>\tk8s.io/api\tv0.37.1\th1:bb=
\tbuild\t-trimpath=true
"""


def test_modules_are_those_that_were_built_in() -> None:
    toolchain, found = build_info.modules(PRINTED)
    assert toolchain == "1.26.6"
    assert found == [
        build_info.Module("github.com/Azure/go-ansiterm", "v0.0.0-2025", "h1:aa="),
        build_info.Module("k8s.io/api", "v0.37.1", "h1:bb="),
    ]
    assert build_info.in_cache(found[0]) == "github.com/!azure/go-ansiterm@v0.0.0-2025"
    assert build_info.modules("") == ("", [])


def test_the_list_of_parts_says_what_is_where() -> None:
    parts = [
        Component("golang", "k8s.io/api", "v0.37.1", ("kubectl",)),
        Component("golang", "k8s.io/api", "v0.37.1", ("agnhost",)),
        Component("deb", "libstdc++6", "12.2.0-14+deb12u1", ("image",), qualifiers={"arch": "amd64"}),
        Component("pypi", "aiohttp", "3.14.5", ("aiohttp.whl",), "ab" * 32, "Apache-2.0"),
    ]
    text = sbom.document("1.0", "c" * 40, "2026-11-23T00:00:00Z", parts)
    assert text == sbom.document("1.0", "c" * 40, "2026-11-23T00:00:00Z", reversed(parts)), "in any order"
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    listed = {one["purl"]: one for one in document["components"]}
    assert sorted(listed) == [
        "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14+deb12u1?arch=amd64",
        "pkg:golang/k8s.io/api@v0.37.1",
        "pkg:pypi/aiohttp@3.14.5",
    ]
    api = listed["pkg:golang/k8s.io/api@v0.37.1"]
    assert [one["value"] for one in api["properties"]] == ["agnhost", "kubectl"]
    aiohttp = listed["pkg:pypi/aiohttp@3.14.5"]
    assert aiohttp["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert aiohttp["licenses"] == [{"expression": "Apache-2.0"}]
    other = sbom.document("1.0", "c" * 40, "2026-11-23T00:00:00Z", parts[:1])
    assert json.loads(other)["serialNumber"] != document["serialNumber"]


@pytest.mark.skipif(not debian.missing([_NO_PACKAGE]), reason="not on Debian")
def test_what_c_is_linked_with_is_listed_where_programs_have_c_in_them() -> None:
    found, texts = parts.libraries(["runc"])
    here = {"libc6-dev", "libseccomp-dev"} - set(debian.missing(["libc6-dev", "libseccomp-dev"]))
    assert here <= {one.name for one in found}
    assert all(one.kind == "deb" and one.inside == ("runc",) for one in found)
    assert [one.component for one in texts] == [f"{one.name}_{one.version}" for one in found]
    assert parts.libraries([]) == ([], [])
    assert [name for name, one in TABLE.items() if one.c] == ["runc"]


def test_equal_licences_are_printed_once_with_all_whom_they_serve() -> None:
    text = notices.text(
        "Licences",
        [
            Notice("b v1", (("LICENSE", "do what you like\n"),)),
            Notice("a v1", (("COPYING", "do what you like"), ("NOTICE", "name us"))),
            Notice("c v1", ()),
        ],
    )
    assert text.count("do what you like") == 1
    assert "a v1 (COPYING)\nb v1 (LICENSE)\n" in text and "name us" in text
    assert text.rstrip().endswith("see their sources:\nc v1")


@pytest.mark.parametrize("name", ["LICENSE", "LICENCE.md", "license.txt", "NOTICE", "COPYING", "COPYRIGHT", "PATENTS"])
def test_texts_of_licences_are_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    (tmp_path / "README.md").write_text("x")
    (tmp_path / "licenses").mkdir()
    assert texts_in(tmp_path, notices.is_notice) == ((name, "x"),)
    assert texts_in(tmp_path / "gone", notices.is_notice) == ()


def test_sums_are_of_the_files(tmp_path: Path) -> None:
    """`sha256sum -c` accepts what `release` writes."""
    from controlplane.release.work import SUMS, publish

    for name in ("b.whl", "a.deb"):
        (tmp_path / "stage").mkdir(exist_ok=True)
        (tmp_path / "stage" / name).write_text(name)
    made = publish(tmp_path / "stage", tmp_path / "dist")
    assert [path.name for path in made] == ["a.deb", "b.whl", SUMS]
    done = subprocess.run(["sha256sum", "-c", SUMS], cwd=tmp_path / "dist", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(b"a.deb").hexdigest() in (tmp_path / "dist" / SUMS).read_text()
    (tmp_path / "stage" / "c.whl").write_text("c")
    assert [path.name for path in publish(tmp_path / "stage", tmp_path / "dist")] == ["c.whl", SUMS]
    assert sorted(path.name for path in (tmp_path / "dist").iterdir()) == [SUMS, "c.whl"], "an older release goes"
