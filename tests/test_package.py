"""The wheel that `make package` builds: installed into an empty environment it runs, and every documented installation takes it."""

import re
import subprocess
import sys
import sysconfig
import urllib.request
from pathlib import Path

import pytest

from tests.servers.process import wait_until

ROOT = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
OFFLINE = ["--no-index", "--no-deps"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as by `make package`, from a copy of the sources: the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("package")
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", "src", "pyproject.toml", "README.md", "LICENSE"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    for name in tracked:
        (folder / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "checkout" / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run(
        [
            *PIP,
            "wheel",
            *OFFLINE,
            "--no-build-isolation",
            "--wheel-dir",
            str(folder / "dist"),
            str(folder / "checkout"),
        ],
        check=True,
    )
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture
def empty_environment(tmp_path: Path) -> Path:
    """An environment with nothing of Waybill's; what it depends on is read from the one of the tests."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A path from a .pth file is searched, but its own .pth files are not read: Waybill of the checkout is not found.
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    return folder


def install(environment: Path, requirement: str) -> None:
    subprocess.run(
        [*PIP, "--python", str(environment / "bin" / "python"), "install", *OFFLINE, requirement], check=True
    )


def test_the_wheel_runs_in_an_empty_environment(wheel: Path, empty_environment: Path, tmp_path: Path) -> None:
    assert wheel.name.startswith("waybill_engine-")
    python = empty_environment / "bin" / "python"
    assert subprocess.run([python, "-I", "-c", "import waybill"], check=False, capture_output=True).returncode != 0
    install(empty_environment, str(wheel))
    found = subprocess.run(
        [python, "-I", "-c", "import waybill; print(waybill.__file__)"], capture_output=True, check=True
    )
    assert str(empty_environment) in found.stdout.decode()
    log = tmp_path / "log"
    with log.open("wb") as output:
        up = subprocess.Popen(
            [empty_environment / "bin" / "waybill", "up", "--data", tmp_path / "data", "--port", "0"],
            stdout=output, stderr=output, env={"PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        try:
            wait_until(lambda: up.poll() is not None or b"http://" in log.read_bytes(), "the URL")
            (url,) = set(re.findall(r"http://127\.0\.0\.1:[0-9]+/", log.read_text()))
            with urllib.request.urlopen(f"{url}ready", timeout=60) as answer:
                assert answer.status == 200
            with urllib.request.urlopen(f"{url}static/waybill.css", timeout=60) as answer:
                assert answer.status == 200
            up.terminate()
            assert up.wait(90) == 0, log.read_text()
        finally:
            up.kill()
            up.wait()


def documented_installations() -> list[tuple[str, str]]:
    """What `pip install` is told to install, wherever a page or a message says so."""
    found = []
    files = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("src/**/*.py"), *ROOT.glob("deploy/*")]
    for file in sorted(files):
        for command in re.findall(r"pip install ([^`\n]*)", file.read_text()):
            for word in re.findall(r"[^\s'\"]+", command):
                if re.search("waybill", word) and not word.startswith("-"):
                    found.append((file.relative_to(ROOT).as_posix(), word))
    return found


def test_every_documented_installation_takes_our_wheel(wheel: Path, empty_environment: Path) -> None:
    documented = documented_installations()
    assert any(file == "docs/how-to/run-it.md" for file, _ in documented)
    for file, word in documented:
        name, _, extras = word.rstrip("].,:").partition("[")
        if name.endswith(".whl"):
            assert re.fullmatch(r"(.*/)?waybill_engine-(\*|[0-9.a-z]+-py3-none-any)\.whl", name), (file, word)
        else:
            assert name == "waybill-engine", (file, word)
        requirement = f"waybill-engine{f'[{extras}]' if extras else ''}"
        done = subprocess.run(
            [
                sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(empty_environment / "bin" / "python"),
                "install", "--dry-run", *OFFLINE, "--pre", "--find-links", str(wheel.parent), requirement,
            ],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "does not provide the extra" not in done.stderr + done.stdout, (file, word)


def test_no_page_names_the_package_of_strangers() -> None:
    for file in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py"), ROOT / "README.md"]:
        assert not re.search(r"install '?waybill(\[|$|['`\s.])", file.read_text(), re.MULTILINE), file
