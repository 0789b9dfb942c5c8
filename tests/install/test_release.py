#!/usr/bin/env python3
"""Packs a release of a build and checks it with other programs: test_release.py BUILD FOLDER. The wheel is installed into a
fresh environment and tested there. Exit status 77: Python has no NumPy."""
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
IN_DEB = ("./usr/bin/pipewright", "./usr/share/man/man1/pipewright.1", "./usr/share/doc/pipewright/copyright",
          "./usr/share/doc/pipewright/licences/CONTENTS", "./usr/share/doc/pipewright/examples/configs/resnet50.yaml")
IN_SOURCE = ("PKG-INFO", "CMakeLists.txt", "pyproject.toml", "LICENSE", "README.md", "python/module.cpp", "scripts/packages")


def fail(text):
    sys.exit(f"error: {text}")


def only(folder, pattern):
    found = list(folder.glob(pattern))
    if len(found) != 1:
        fail(f"{len(found)} files {pattern} in {folder}: {sorted(path.name for path in folder.iterdir())}")
    return found[0]


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_wheel(file):
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        info = next(name.split("/")[0] for name in names if ".dist-info/" in name)
        third_party = archive.read(f"{info}/licenses/THIRD_PARTY.txt").decode()
        tags = archive.read(f"{info}/WHEEL").decode()
    for name in ("pipewright/bin/pipewright", "pipewright/__init__.py", f"{info}/licenses/LICENSE"):
        if name not in names:
            fail(f"no {name} in {file.name}")
    libraries = [name.rsplit("/", 1)[1] for name in names if name.startswith("pipewright/lib/pipewright/")]
    for library in [*libraries, "fmt", "boost", "cli11", "nlohmann-json", "pybind11"]:
        if not any(line.startswith(library + " ") for line in third_party.splitlines()):
            fail(f"{library} is not listed:\n{third_party}")
        if f"pipewright/licences/{library}.txt" not in names:
            fail(f"no licence of {library}")
    if not any(library.startswith("libdnnl") for library in libraries):
        fail(f"no oneDNN among {libraries}")
    for python in file.name.split("-")[2].split("."):
        module = f"pipewright/_core.cpython-{python.removeprefix('cp')}-"
        if f"Tag: {python}-{python}-" not in tags or not any(name.startswith(module) for name in names):
            fail(f"no module for {python}")


def check_source(file):
    top = file.name.removesuffix(".tar.gz")
    with tarfile.open(file) as archive:
        names = archive.getnames()
    for name in IN_SOURCE:
        if f"{top}/{name}" not in names:
            fail(f"no {name} in {file.name}")
    for name in names:
        if not name.startswith(f"{top}/") or name.startswith(f"{top}/results/"):
            fail(f"{name} in {file.name}")


def checksums_hold(folder):
    said = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, capture_output=True, check=False)
    return said.returncode == 0


def check_checksums(folder):
    listed = {line.split("  ", 1)[1] for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()}
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} - {"SHA256SUMS"}
    if listed != files or not checksums_hold(folder):
        fail(f"checksums of {listed ^ files or 'another content'}")
    source = only(folder, "*.tar.gz")
    source.write_bytes(source.read_bytes() + b"\n")
    if checksums_hold(folder):
        fail("a changed file has the same checksum")


def check_refusals(build):
    """A changed source tree, and a folder with files of others."""
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary) / "clone"
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, clone], check=True)
        for file in ("scripts/release", "scripts/wheel"):
            (clone / file).write_bytes((ROOT / file).read_bytes())
        (clone / "new").touch()
        kept = Path(temporary) / "kept"
        kept.mkdir()
        (kept / "mine").touch()
        for more, parts in (([], ("not committed", "?? new", "--uncommitted")),
                            (["--uncommitted", "--out", kept], ("has files", "--out DIR"))):
            said = subprocess.run([sys.executable, clone / "scripts/release", "--of", build, *more],
                                  capture_output=True, text=True, check=False)
            if said.returncode != 1 or not said.stderr.startswith("error: ") or any(p not in said.stderr for p in parts):
                fail(f"{more}: {said.returncode} {said.stderr}")
        if not (kept / "mine").exists():
            fail("a file of others is removed")


def main():
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("skipped: no NumPy")
        sys.exit(77)
    build, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    check_refusals(build)
    subprocess.run([sys.executable, ROOT / "scripts" / "release", "--of", build, "--uncommitted", "--out", folder],
                   check=True)
    check_wheel(only(folder, "*.whl"))
    check_source(only(folder, "*.tar.gz"))
    package = only(folder, "*.deb")
    in_package = output_of("dpkg-deb", "--contents", package)
    for name in IN_DEB:
        if f" {name}\n" not in in_package:
            fail(f"no {name} in {package.name}:\n{in_package}")
    if "libdnnl" not in output_of("dpkg-deb", "--field", package, "Depends"):
        fail(f"{package.name} does not depend on oneDNN")
    if (folder / "site").exists() != (build / "site" / "index.html").exists():
        fail("the site is not that of the build")
    text = (folder / "CONTENTS.txt").read_text(encoding="utf-8")
    for file in [*folder.glob("*.*"), "SHA256SUMS"]:
        if Path(file).name not in text and Path(file).name != "CONTENTS.txt":
            fail(f"CONTENTS.txt does not say what {file} is")
    check_checksums(folder)


main()
