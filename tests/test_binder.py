"""What Binder would build, rendered by repo2docker itself, without Docker.

`tests/benchmarks/binder_rehearsal.py` carries out the same steps and runs notebooks in what they made.
"""

import os
import re
import urllib.parse
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="repo2docker and Binder run on Linux")

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def chosen(folder: Path):
    """Give repo2docker's build pack for a repository: the first that finds itself responsible."""
    from repo2docker.app import Repo2Docker

    application = Repo2Docker()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        packs = (kind(base_image=application.base_image) for kind in application.buildpacks)
        pack = next(pack for pack in packs if pack.detect())
        pack.platform = "linux/amd64"
        return type(pack).__name__, pack.python_version, pack.render()


@pytest.fixture(scope="module")
def rendered():
    return chosen(ROOT)


@pytest.fixture(scope="module")
def steps(rendered):
    """The lines of the Dockerfile that do something, continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", rendered[2])
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def at(steps: list[str], pattern: str) -> int:
    """Give the place of the one step that matches."""
    found = [i for i, step in enumerate(steps) if re.search(pattern, step)]
    assert len(found) == 1, f"{pattern}: {[steps[i] for i in found]}"
    return found[0]


def test_conda_makes_the_python_of_binder_environment_yml(rendered):
    kind, python, _ = rendered
    assert kind == "CondaBuildPack"
    asked = (ROOT / "binder" / "environment.yml").read_text()
    assert f"python={python} " in asked


def test_steps_come_in_order_and_as_the_user(steps):
    base = at(steps, r"^RUN TIMEFORMAT.*install-base-env\.bash")
    environment = at(steps, r"env update .*--file \"binder/environment\.yml\"")
    files = at(steps, r"^COPY .*src/ \$\{REPO_DIR\}/$")
    post_build = at(steps, r"^RUN \./binder/postBuild$")
    start = at(steps, r'^ENV R2D_ENTRYPOINT="\$\{REPO_DIR\}/binder/start"$')
    entry = at(steps, r"^ENTRYPOINT ")
    assert base < environment < files < post_build < start < entry
    users = [step for step in steps[:post_build] if step.startswith("USER ")]
    assert users[-1] == "USER ${NB_USER}"
    assert "RUN chmod +x binder/postBuild" in steps
    assert 'RUN chmod +x "${REPO_DIR}/binder/start"' in steps


def test_no_second_list_of_packages_is_read(steps):
    """The environment.yml and the pyproject.toml of the root, and any pip or apt list, stay unread."""
    text = "\n".join(steps)
    assert re.findall(r"--file \"([^\"]+)\"", text) == ["binder/environment.yml"]
    for step in steps:
        assert not re.search(r"\bpip3? install\b|requirements\.txt|apt\.txt|install\.R", step), step


def test_a_second_environment_at_the_root_would_be_ignored(tmp_path):
    """The reason why binder/ exists at all: it wins against the files beside README.md."""
    (tmp_path / "environment.yml").write_text("dependencies: [python=3.9]\n")
    assert chosen(tmp_path)[1] == "3.9"
    (tmp_path / "binder").mkdir()
    (tmp_path / "binder" / "environment.yml").write_text("dependencies: [python=3.12]\n")
    assert chosen(tmp_path)[1] == "3.12"


def test_nothing_else_in_binder_is_read_by_repo2docker():
    known = {"environment.yml", "postBuild", "start", "jupyter"}
    assert {path.name for path in (ROOT / "binder").iterdir()} == known


def test_the_badge_lands_on_the_first_notebook_in_jupyterlab():
    (link,) = re.findall(r"^\[binder\]: (\S+)$", README, re.MULTILINE)
    parts = urllib.parse.urlsplit(link)
    assert (parts.scheme, parts.netloc) == ("https", "mybinder.org")
    assert re.fullmatch(r"/v2/gh/[^/]+/[^/]+/[^/]+", parts.path)
    query = urllib.parse.parse_qs(parts.query, strict_parsing=True)
    (landing,) = query.pop("urlpath")
    assert query == {}
    assert landing.startswith("lab/tree/notebooks/00_")
    assert (ROOT / landing.removeprefix("lab/tree/")).is_file()
    assert re.search(r"\[!\[[^\]]+\]\([^)]+\)\]\[binder\]", README), "the badge uses the link"


def test_the_place_of_the_repository_is_named_once():
    assert README.count("OWNER/REPOSITORY") <= 1
    assert README.count("mybinder.org/v2/") == 1
